// Linear layers: the CPU's bits, for every row count and so through every kernel.
#include <bit>
#include <string>

#include "support.h"

namespace cuda_test {
namespace {

struct Shape {
  std::int32_t inputs, outputs;
  std::int64_t stride;  // of x; not a multiple of 4 where 16-byte loads must not be used
};

struct Weights {
  std::vector<float> wide;
  std::vector<std::uint16_t> narrow;
  std::vector<float> bias;
};

Weights make_weights(tessera::Random& random, const Shape& shape, float scale) {
  Weights w;
  const auto inputs = static_cast<std::size_t>(shape.inputs), outputs = static_cast<std::size_t>(shape.outputs);
  w.wide = random_floats(random, inputs * outputs, scale);
  for (const float value : w.wide)
    w.narrow.push_back(static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(value) >> 16));
  w.bias = random_floats(random, outputs);
  return w;
}

/// The weight in two parts, as fused projections are.
const sdk::Linear* prepare(const Side& side, const Weights& w, const Shape& shape, sdk::DType type, bool bias) {
  const std::int32_t first = shape.outputs / 3;
  const auto offset = static_cast<std::size_t>(first) * static_cast<std::size_t>(shape.inputs);
  const bool f32 = type == sdk::DType::f32;
  const void* head = f32 ? static_cast<const void*>(w.wide.data()) : w.narrow.data();
  const void* tail = f32 ? static_cast<const void*>(w.wide.data() + offset) : w.narrow.data() + offset;
  const sdk::HostMatrix parts[] = {{head, type, first, shape.inputs},
                                   {tail, type, shape.outputs - first, shape.inputs}};
  const sdk::Linear* linear = nullptr;
  const sdk::Status status = side->prepare_linear(parts, 2, bias ? w.bias.data() : nullptr, &linear);
  REQUIRE_MESSAGE(status.ok(), status.message);
  return linear;
}

void check_shape(const Shape& shape, sdk::DType type, bool bias, float scale) {
  constexpr std::uint64_t kSeed = 31;
  constexpr std::int32_t kMostRows = 513;
  CAPTURE(kSeed);
  CAPTURE(shape.inputs);
  CAPTURE(shape.outputs);
  CAPTURE(shape.stride);
  const std::string type_name = sdk::dtype_name(type);
  CAPTURE(type_name);
  tessera::Random random(kSeed);
  const Weights w = make_weights(random, shape, scale);
  const std::vector<float> x = random_floats(random, static_cast<std::size_t>(kMostRows * shape.stride), scale);
  const Side cpu("cpu"), cuda("cuda");
  const std::size_t outputs = static_cast<std::size_t>(shape.outputs);
  const auto run = [&](const Side& side, const sdk::Linear* linear, float* input, std::int32_t rows) {
    float* y = side.poisoned(static_cast<std::size_t>(rows) * outputs);
    const sdk::Status status =
        side->linear(*linear, matrix(input, rows, shape.inputs, shape.stride), matrix(y, rows, shape.outputs));
    REQUIRE_MESSAGE(status.ok(), status.message);
    return side.get(y, static_cast<std::size_t>(rows) * outputs);
  };
  // A row's bits do not depend on the row count: the CPU runs once.
  const std::vector<float> all = run(cpu, prepare(cpu, w, shape, type, bias), cpu.put(x), kMostRows);
  const sdk::Linear* linear = prepare(cuda, w, shape, type, bias);
  float* input = cuda.put(x);
  for (const std::int32_t rows : {1, 2, 3, 7, 8, 9, 16, 31, 32, 33, 64, 100, 128, 513}) {
    const std::vector<float> expected(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(rows) * shape.outputs);
    CHECK_MESSAGE(differing(run(cuda, linear, input, rows), expected) == 0, "rows ", rows);
  }
}

TEST_CASE("a CUDA linear layer has the CPU's bits for every shape, type and row count") {
  if (!gpu_is_there()) return;
  for (const sdk::DType type : {sdk::DType::f32, sdk::DType::bf16, sdk::DType::f16}) {
    bool bias = false;
    for (const Shape& shape : {Shape{30, 33, 30}, Shape{32, 7, 32}, Shape{100, 65, 104}, Shape{512, 64, 512},
                               Shape{513, 130, 516}, Shape{513, 130, 513}, Shape{768, 1152, 768},
                               Shape{1030, 131, 1032}, Shape{2048, 768, 2048}, Shape{1030, 4100, 1032}})
      check_shape(shape, type, bias = !bias, 1.0f);
  }
}

TEST_CASE("a CUDA linear layer with more panels than are split has the CPU's bits") {
  if (!gpu_is_there()) return;
  for (const sdk::DType type : {sdk::DType::f32, sdk::DType::bf16}) check_shape({768, 20001, 768}, type, true, 1.0f);
}

TEST_CASE("padding of the inputs changes no bit, not even the sign of a sum that underflowed to -0") {
  if (!gpu_is_there()) return;
  for (const Shape& shape : {Shape{33, 70, 36}, Shape{530, 70, 532}})
    check_shape(shape, sdk::DType::f32, false, 0x1p-74f);  // products are around the least subnormal
}

}  // namespace
}  // namespace cuda_test
