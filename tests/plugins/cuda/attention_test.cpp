// Reference attention: the CPU's bits for every head size, GQA ratio and length. The exact kernels are compared by
// `tessera check attention`; here only what it cannot see.
#include <algorithm>

#include "support.h"

namespace cuda_test {
namespace {

constexpr std::int32_t kLayers = 2, kLayer = 1;

/// A plugin and its options.
struct Plugin {
  const char* name = "attention_reference";
  std::vector<tessera::PluginOption> options{};
};

struct Heads {
  std::int32_t query, key_value, dim;
};

std::size_t size_of(std::int64_t a, std::int64_t b) { return static_cast<std::size_t>(a * b); }

/// Attention of all rows; with `scores`, the emitted scores of visible positions follow the output.
std::vector<float> attend(const Side& side, const Plugin& plugin, const Heads& heads, const Step& step, bool scores) {
  constexpr std::uint64_t kSeed = 51;
  tessera::Random random(kSeed);
  const auto rows = static_cast<std::int32_t>(step.tokens.size());
  const std::size_t pool = size_of(step.pool_pages, kLayers * sdk::kPageSize * heads.key_value * heads.dim);
  const std::vector<float> k = random_floats(random, pool, 2.0f), v = random_floats(random, pool);
  const std::size_t width = size_of(heads.query, heads.dim), stride = 4096;
  const std::vector<float> q = random_floats(random, static_cast<std::size_t>(rows) * width, 2.0f);
  void* workspace = nullptr;
  const auto attention =
      side.attention(plugin.name, {kLayers, heads.query, heads.key_value, heads.dim, 0.11f, sdk::DType::f32},
                     &workspace, plugin.options);
  sdk::PackedRows device{};
  REQUIRE(side->begin_step(step.view(), &device).ok());
  REQUIRE(attention->plan(step.view()).ok());
  float* out = side.poisoned(static_cast<std::size_t>(rows) * width);
  const std::size_t emitted = scores ? size_of(rows, heads.query) * stride : 0;
  float* scored = scores ? side.put(std::vector<float>(emitted, 7.0f)) : nullptr;
  const sdk::KvView kv{side.put(k), side.put(v), sdk::DType::f32, step.pool_pages, kLayers, heads.key_value, heads.dim};
  const auto cols = static_cast<std::int32_t>(width);
  const sdk::Status status = attention->run({matrix(side.put(q), rows, cols), matrix(out, rows, cols), kv, kLayer,
                                             device, workspace, scored, static_cast<std::int64_t>(stride)},
                                            side->context());
  REQUIRE_MESSAGE(status.ok(), status.message);
  std::vector<float> result = side.get(out, static_cast<std::size_t>(rows) * width);
  if (scores) {
    const std::vector<float> all = side.get(scored, emitted);
    result.insert(result.end(), all.begin(), all.end());
  }
  return result;
}

void check_attention(const Heads& heads, const Step& step, bool scores, const Plugin& plugin = {}) {
  CAPTURE(heads.query);
  CAPTURE(heads.key_value);
  CAPTURE(heads.dim);
  const Side cpu("cpu"), cuda("cuda");
  CHECK(differing(attend(cuda, plugin, heads, step, scores), attend(cpu, {}, heads, step, scores)) == 0);
}

Step ragged_step() {
  Step step;
  step.add(0, 3);
  step.add(254, 4);  // across a segment boundary
  step.add(511, 2);
  step.add(17, 1);
  return step;
}

TEST_CASE("CUDA reference attention has the CPU's bits for every head size and GQA ratio") {
  if (!gpu_is_there()) return;
  for (const std::int32_t dim : {32, 64, 96, 128, 256, 288, 1024})
    for (const Heads& heads : {Heads{4, 4, dim}, Heads{6, 2, dim}, Heads{5, 1, dim}})
      check_attention(heads, ragged_step(), false);
}

TEST_CASE("CUDA reference attention has the CPU's bits over long histories and whole prompts") {
  if (!gpu_is_there()) return;
  Step longest;
  longest.add(3333, 3);
  longest.add(4090, 1);
  check_attention({4, 2, 64}, longest, false);
  Step prompt;
  prompt.add(0, 300);
  check_attention({4, 1, 64}, prompt, false);
}

TEST_CASE("CUDA reference attention emits the CPU's scores and nothing past the causal end") {
  if (!gpu_is_there()) return;
  check_attention({4, 2, 96}, ragged_step(), true);
}

TEST_CASE("CUDA exact attention over few rows of long histories has the reference's bits and scores") {
  if (!gpu_is_there()) return;
  Step decode, rounds;
  for (const std::int32_t position : {3, 255, 256, 300, 511, 512, 1023, 2047, 3000}) decode.add(position, 1);
  for (const std::int32_t position : {0, 253, 300, 510, 1020, 2046}) rounds.add(position, 4);  // across segments
  const Plugin streamed{"attention_exact", {{"stream_units", "1", {"test", 0, 0}}}}, chosen{"attention_exact"};
  for (const std::int32_t dim : {32, 64, 96, 128})
    for (const Plugin& plugin : {streamed, chosen}) {
      for (const Heads& heads :
           {Heads{3, 3, dim}, Heads{4, 2, dim}, Heads{6, 2, dim}, Heads{4, 1, dim}, Heads{8, 1, dim}})
        check_attention(heads, decode, true, plugin);
      check_attention({2, 2, dim}, rounds, true, plugin);
      check_attention({4, 2, dim}, rounds, true, plugin);
    }
}

TEST_CASE("CUDA exact attention has room for every step within its limits, whatever the head ratio") {
  if (!gpu_is_there()) return;
  const Side cuda("cuda");
  for (std::int32_t group = 1; group <= 16; ++group)
    for (const std::int32_t rows : {1, 17, 250, 500, 700, 1000}) {
      CAPTURE(group);
      CAPTURE(rows);
      const auto attention = cuda.unbound("attention_exact");
      std::size_t bytes = 0;
      const sdk::StepLimits limits{1000, 40, 40, 256, 40 * 16};
      REQUIRE(attention->bind({1, group, 1, 64, 0.125f, sdk::DType::f32}, limits, cuda->context(), bytes).ok());
      Step step;
      for (std::int32_t left = rows; left > 0; left -= 25) step.add(100, std::min(left, 25));
      const sdk::Status status = attention->plan(step.view());
      CHECK_MESSAGE(status.ok(), status.message);
    }
}

}  // namespace
}  // namespace cuda_test
