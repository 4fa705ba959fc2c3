// loop_reference: the CPU's bits for selections, references and outputs, over histories of many segments.
#include <numeric>

#include "support.h"

namespace cuda_test {
namespace {

constexpr std::int32_t kLayers = 2, kLayer = 1;

struct Case {
  std::int32_t query, key_value, dim;
  const char* retention;
  bool ties = false;                // scores of few values, so that positions decide
  const char* few_units = nullptr;  // of the GPU: below it work is cut finer
};

std::vector<std::int32_t> shuffled_ids(std::int32_t count, std::uint64_t seed) {
  std::vector<std::int32_t> ids(static_cast<std::size_t>(count));
  std::iota(ids.begin(), ids.end(), 0);
  tessera::Random random(seed);
  for (std::size_t i = ids.size(); i > 1; --i) std::swap(ids[i - 1], ids[random.below(static_cast<std::uint32_t>(i))]);
  return ids;
}

/// What loops 2 and 3 of the step's rows give: masses, outputs after capture, outputs after consuming with other
/// queries, keys and values.
std::vector<float> decode(const Side& side, const Case& one, const Step& step, std::uint64_t list_seed) {
  constexpr std::uint64_t kSeed = 61;
  tessera::Random random(kSeed);
  const auto rows = static_cast<std::int32_t>(step.tokens.size());
  const auto count = static_cast<std::size_t>(rows);
  const std::size_t pool = static_cast<std::size_t>(step.pool_pages) * kLayers * sdk::kPageSize *
                           static_cast<std::size_t>(one.key_value * one.dim);
  const auto cols = one.query * one.dim;
  const std::size_t width = static_cast<std::size_t>(cols), stride = kLimits.max_context;
  std::vector<std::int32_t> slots(count);
  for (std::size_t i = 0; i < count; ++i) slots[i] = static_cast<std::int32_t>(count - 1 - i);
  std::vector<tessera::PluginOption> options{{"retention", one.retention, {}}};
  if (one.few_units != nullptr && side->context().device == sdk::Device::cuda)
    options.push_back({"few_units", one.few_units, {}});
  const auto sparse = side.sparse("loop_reference", options);
  std::vector<std::int32_t> list_first, list_pages = shuffled_ids(kLimits.max_list_pages, list_seed);
  sdk::PackedRows host = step.view(), device{};
  for (std::int32_t row = 0; row < rows; ++row) {
    list_first.push_back(host.num_list_pages);
    host.num_list_pages += sparse->list_pages(host.positions[row]);
  }
  REQUIRE(host.num_list_pages <= kLimits.max_list_pages);
  host.references = slots.data(), host.list_first = list_first.data(), host.list_pages = list_pages.data();
  REQUIRE(side->begin_step(host, &device).ok());

  const sdk::AttentionShape shape{kLayers, one.query, one.key_value, one.dim, 0.11f, sdk::DType::f32};
  std::size_t bytes = 0;
  REQUIRE(sparse->bind(shape, kLimits, {rows, kLimits.max_list_pages}, side->context(), bytes).ok());
  float* workspace = side.poisoned(bytes / sizeof(float) + 1);
  std::vector<float> scores = random_floats(random, count * static_cast<std::size_t>(one.query) * stride, 4.0f);
  if (one.ties)
    for (float& score : scores)
      score = static_cast<float>(static_cast<std::int32_t>(score)) * (score < 0 ? -0.0f : 1.0f);
  float* masses = side.poisoned(count * static_cast<std::size_t>(one.query));
  float* dense = side.put(random_floats(random, count * width));
  const auto args = [&](float* q, float* out) {
    const sdk::KvView kv{side.put(random_floats(random, pool, 2.0f)),
                         side.put(random_floats(random, pool)),
                         sdk::DType::f32,
                         step.pool_pages,
                         kLayers,
                         one.key_value,
                         one.dim};
    return sdk::SparseArgs{
        matrix(q, rows, cols), matrix(out, rows, cols), kv, kLayer, device, workspace, nullptr, 0, nullptr};
  };
  sdk::SparseArgs capture = args(nullptr, dense);
  capture.scores = side.put(scores), capture.scores_stride = static_cast<std::int64_t>(stride);
  capture.masses = masses;
  REQUIRE(sparse->plan(sdk::RowMode::capture, host).ok());
  REQUIRE(sparse->capture(capture, side->context()).ok());
  float* out = side.poisoned(count * width);
  REQUIRE(sparse->plan(sdk::RowMode::consume, host).ok());
  REQUIRE(sparse->consume(args(side.put(random_floats(random, count * width, 2.0f)), out), side->context()).ok());
  std::vector<float> result = side.get(masses, count * static_cast<std::size_t>(one.query));
  for (float* values : {dense, out}) {
    const std::vector<float> more = side.get(values, count * width);
    result.insert(result.end(), more.begin(), more.end());
  }
  return result;
}

void check_sparse(const Case& one, const Step& step) {
  CAPTURE(one.query);
  CAPTURE(one.key_value);
  CAPTURE(one.dim);
  CAPTURE(one.retention);
  CAPTURE(one.ties);
  const Side cpu("cpu"), cuda("cuda");
  CHECK(differing(decode(cuda, one, step, 5), decode(cpu, one, step, 6)) == 0);
}

/// Rows of a round share a slice; others stand alone.
Step decoding_step() {
  Step step;
  for (const std::int32_t position : {0, 1, 31, 255, 256, 1023, 4095}) step.add(position, 1);
  step.add(2040, 4);
  return step;
}

TEST_CASE("CUDA sparse decoding has the CPU's bits for every retention, over lists of many segments") {
  if (!gpu_is_there()) return;
  for (const char* retention : {"0.9", "0.5", "0.25", "0.1", "0.02"})
    check_sparse({4, 2, 64, retention}, decoding_step());
}

TEST_CASE("CUDA sparse decoding has the CPU's bits for every head size and GQA ratio") {
  if (!gpu_is_there()) return;
  for (const std::int32_t dim : {32, 64, 96, 128, 256, 288, 1024}) check_sparse({6, 2, dim, "0.3"}, decoding_step());
  check_sparse({5, 1, 128, "0.3"}, decoding_step());
  check_sparse({16, 16, 128, "0.1"}, decoding_step());
}

TEST_CASE("CUDA sparse decoding has the CPU's bits however finely its work is cut") {
  if (!gpu_is_there()) return;
  for (const char* few : {"0", "1000000"})
    for (const std::int32_t dim : {64, 96, 128, 256}) check_sparse({6, 2, dim, "0.3", false, few}, decoding_step());
}

TEST_CASE("CUDA sparse decoding takes the lowest of equal positions, zeros of both signs included") {
  if (!gpu_is_there()) return;
  for (const char* retention : {"0.5", "0.1"}) check_sparse({4, 4, 32, retention, true}, decoding_step());
}

}  // namespace
}  // namespace cuda_test
