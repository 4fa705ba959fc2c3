// Everything but linear layers: the CPU's bits, and what the engine relies on around them.
#include "support.h"

namespace cuda_test {
namespace {

/// Runs `body` on both sides; it returns the values to compare.
template <class Body>
void check_equal(Body&& body) {
  const Side cpu("cpu"), cuda("cuda");
  CHECK(differing(body(cuda), body(cpu)) == 0);
}

void require_ok(const sdk::Status& status) { REQUIRE_MESSAGE(status.ok(), status.message); }

std::vector<float> joined(std::vector<float> a, const std::vector<float>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

TEST_CASE("CUDA RMSNorm has the CPU's bits, and adds its residual in place") {
  if (!gpu_is_there()) return;
  constexpr std::uint64_t kSeed = 41;
  CAPTURE(kSeed);
  for (const std::int32_t cols : {1, 32, 255, 256, 257, 768, 1000, 2048})
    for (const std::int32_t rows : {1, 7, 513})
      for (const bool residual : {false, true}) {
        CAPTURE(cols);
        CAPTURE(rows);
        CAPTURE(residual);
        tessera::Random random(kSeed);
        const auto size = static_cast<std::size_t>(rows) * static_cast<std::size_t>(cols);
        const std::vector<float> x = random_floats(random, size), delta = random_floats(random, size);
        const std::vector<float> weight = random_floats(random, static_cast<std::size_t>(cols));
        check_equal([&](const Side& side) {
          float* values = side.put(x);
          float* out = side.poisoned(size);
          const sdk::Matrix added = matrix(side.put(delta), rows, cols);
          require_ok(side->rms_norm({matrix(values, rows, cols), residual ? &added : nullptr, side.put(weight), 1e-5f,
                                     matrix(out, rows, cols)}));
          return joined(side.get(out, size), side.get(values, size));
        });
      }
}

TEST_CASE("CUDA SwiGLU has the CPU's bits over the whole range of the exponential") {
  if (!gpu_is_there()) return;
  constexpr std::uint64_t kSeed = 42;
  CAPTURE(kSeed);
  for (const std::int32_t cols : {1, 100, 2048})
    for (const std::int32_t rows : {1, 9, 513}) {
      tessera::Random random(kSeed);
      const auto size = static_cast<std::size_t>(rows) * static_cast<std::size_t>(cols);
      const std::vector<float> gate_up = random_floats(random, 2 * size, 120.0f);
      check_equal([&](const Side& side) {
        float* out = side.poisoned(size);
        require_ok(side->swiglu(matrix(side.put(gate_up), rows, 2 * cols), matrix(out, rows, cols)));
        return side.get(out, size);
      });
    }
}

TEST_CASE("CUDA embedding and gather have the CPU's bits, step after step") {
  if (!gpu_is_there()) return;
  constexpr std::uint64_t kSeed = 43;
  constexpr std::int32_t kVocab = 97, kWidth = 100;
  CAPTURE(kSeed);
  tessera::Random random(kSeed);
  const std::vector<float> table = random_floats(random, kVocab * kWidth);
  const std::vector<float> delta = random_floats(random, 64 * kWidth);
  const sdk::HostMatrix stored{table.data(), sdk::DType::f32, kVocab, kWidth};
  check_equal([&](const Side& side) {
    const sdk::Linear* embedding = nullptr;
    require_ok(side->prepare_linear(&stored, 1, nullptr, &embedding));
    const sdk::Matrix added = matrix(side.put(delta), 64, kWidth);
    std::vector<float> all;
    // Each step is sent while the one before may still be running.
    std::vector<float*> outs;
    for (std::int32_t rows = 1; rows <= 40; rows += 13) {
      Step step;
      step.add(rows, rows);
      step.add(0, 5);
      std::erase_if(step.logit_rows, [](std::int32_t row) { return row % 3 == 1; });
      const auto wanted = static_cast<std::int32_t>(step.logit_rows.size());
      sdk::PackedRows device{};
      require_ok(side->begin_step(step.view(), &device));
      float* hidden = side.poisoned(64 * kWidth);
      float* out = side.poisoned(64 * kWidth);
      require_ok(side->embed(*embedding, device, matrix(hidden, rows + 5, kWidth)));
      require_ok(side->gather(matrix(hidden, rows + 5, kWidth), rows % 2 == 0 ? &added : nullptr, device,
                              matrix(out, wanted, kWidth)));
      all = joined(joined(std::move(all), side.get(hidden, static_cast<std::size_t>((rows + 5) * kWidth))),
                   side.get(out, static_cast<std::size_t>(wanted * kWidth)));
    }
    return all;
  });
}

void check_rotary(std::int32_t head_dim, std::int32_t rotary_dim, bool norms) {
  constexpr std::uint64_t kSeed = 44;
  constexpr std::int32_t kQ = 6, kKv = 2, kLayers = 2, kContext = 700;
  CAPTURE(kSeed);
  CAPTURE(head_dim);
  CAPTURE(rotary_dim);
  CAPTURE(norms);
  tessera::Random random(kSeed);
  Step step;
  step.add(0, 1);
  step.add(600, 40);
  step.add(15, 18);
  const auto rows = static_cast<std::int32_t>(step.tokens.size());
  const auto size = [](std::int64_t a, std::int64_t b) { return static_cast<std::size_t>(a * b); };
  const std::vector<float> qkv = random_floats(random, size(rows, (kQ + 2 * kKv) * head_dim));
  const std::vector<float> cosines = random_floats(random, size(kContext, rotary_dim / 2));
  const std::vector<float> sines = random_floats(random, cosines.size());
  const std::vector<float> q_norm = random_floats(random, size(1, head_dim));
  const std::vector<float> k_norm = random_floats(random, q_norm.size());
  const std::size_t pool = size(step.pool_pages, kLayers * sdk::kPageSize * kKv * head_dim);
  check_equal([&](const Side& side) {
    sdk::PackedRows device{};
    require_ok(side->begin_step(step.view(), &device));
    const std::vector<float> untouched(pool, 3.0f);
    const sdk::KvView kv{
        side.put(untouched), side.put(untouched), sdk::DType::f32, step.pool_pages, kLayers, kKv, head_dim};
    float* q_out = side.poisoned(size(rows, kQ * head_dim));
    require_ok(side->rotary_append({matrix(side.put(qkv), rows, (kQ + 2 * kKv) * head_dim),
                                    matrix(q_out, rows, kQ * head_dim), kQ, kKv, head_dim, rotary_dim,
                                    side.put(cosines), side.put(sines), norms ? side.put(q_norm) : nullptr,
                                    norms ? side.put(k_norm) : nullptr, 1e-6f, kv, 1, device}));
    return joined(side.get(q_out, size(rows, kQ * head_dim)), joined(side.get(kv.k, pool), side.get(kv.v, pool)));
  });
}

TEST_CASE("CUDA rotation, head norms and the KV append have the CPU's bits and touch no other position") {
  if (!gpu_is_there()) return;
  for (const std::int32_t head_dim : {32, 64, 96, 128, 256})
    for (const bool norms : {false, true}) {
      check_rotary(head_dim, head_dim, norms);
      check_rotary(head_dim, head_dim / 2, norms);
    }
}

TEST_CASE("CUDA memory starts at zero, and large downloads arrive whole") {
  if (!gpu_is_there()) return;
  const Side cuda("cuda");
  constexpr std::size_t kCount = 1'300'000;  // several pinned halves and a rest
  void* memory = nullptr;
  require_ok(cuda->allocate(kCount * sizeof(float), &memory));
  CHECK(reinterpret_cast<std::uintptr_t>(memory) % 256 == 0);
  CHECK(differing(cuda.get(memory, kCount), std::vector<float>(kCount)) == 0);
  tessera::Random random(45);
  const std::vector<float> values = random_floats(random, kCount);
  CHECK(differing(cuda.get(cuda.put(values), kCount), values) == 0);
}

TEST_CASE("a recorded graph replays with the contents of its buffers then, and has the bits of eager launches") {
  if (!gpu_is_there()) return;
  constexpr std::int32_t kInputs = 768, kOutputs = 320;
  tessera::Random random(46);
  const std::vector<float> w = random_floats(random, kInputs * kOutputs), first = random_floats(random, 3 * kInputs);
  const std::vector<float> second = random_floats(random, first.size());
  const Side cuda("cuda");
  const sdk::HostMatrix stored{w.data(), sdk::DType::f32, kOutputs, kInputs};
  const sdk::Linear* linear = nullptr;
  require_ok(cuda->prepare_linear(&stored, 1, nullptr, &linear));
  float* x = cuda.put(first);
  float* y = cuda.poisoned(3 * kOutputs);
  std::uint64_t graph = 0;
  require_ok(cuda->capture_begin());
  require_ok(cuda->linear(*linear, matrix(x, 3, kInputs), matrix(y, 3, kOutputs)));
  require_ok(cuda->capture_end(&graph));
  for (const std::vector<float>& values : {first, second, first}) {
    require_ok(cuda->upload(x, values.data(), values.size() * sizeof(float)));
    require_ok(cuda->replay(graph));
    const std::vector<float> replayed = cuda.get(y, 3 * kOutputs);
    require_ok(cuda->linear(*linear, matrix(x, 3, kInputs), matrix(y, 3, kOutputs)));
    CHECK(differing(replayed, cuda.get(y, 3 * kOutputs)) == 0);
  }
  CHECK(!cuda->replay(graph + 1).ok());
}

TEST_CASE("a step beyond the limits of bind is refused") {
  if (!gpu_is_there()) return;
  const Side cuda("cuda");
  Step step;
  step.add(0, kLimits.max_rows + 1);
  step.logit_rows.clear();
  sdk::PackedRows device{};
  CHECK(!cuda->begin_step(step.view(), &device).ok());
}

}  // namespace
}  // namespace cuda_test
