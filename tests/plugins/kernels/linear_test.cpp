// Linear layers and norms: one order, whatever the instruction set, the threads and the neighbours.
#include <bit>
#include <cmath>

#include "support.h"

namespace kernel_test {
namespace {

using Backend = Plugin<sdk::Backend>;

std::vector<float> naive_linear(const std::vector<float>& x, const std::vector<float>& w, const float* bias,
                                std::size_t rows, std::size_t outputs, std::size_t inputs) {
  std::vector<float> y(rows * outputs);
  for (std::size_t r = 0; r < rows; ++r)
    for (std::size_t o = 0; o < outputs; ++o) {
      float sum = 0.0f;
      for (std::size_t begin = 0; begin < inputs; begin += 512) {
        float chain = 0.0f;
        for (std::size_t k = begin; k < std::min(begin + 512, inputs); ++k)
          chain = std::fma(x[r * inputs + k], w[o * inputs + k], chain);
        sum = begin == 0 ? chain : sum + chain;
      }
      y[r * outputs + o] = bias == nullptr ? sum : sum + bias[o];
    }
  return y;
}

void check_linear(const Setting& setting, bool bf16, std::size_t outputs, std::size_t inputs, bool with_bias) {
  constexpr std::uint64_t kSeed = 11;
  CAPTURE(kSeed);
  CAPTURE(setting.isa);
  CAPTURE(setting.threads);
  CAPTURE(bf16);
  tessera::Random random(kSeed);
  std::vector<float> w = random_floats(random, outputs * inputs);
  std::vector<std::uint16_t> narrow(w.size());
  for (std::size_t i = 0; bf16 && i < w.size(); ++i) {
    narrow[i] = static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(w[i]) >> 16);
    w[i] = sdk::widen_bf16(narrow[i]);
  }
  const std::vector<float> bias = random_floats(random, outputs);
  Backend backend(backend_cpu_descriptor, setting.isa, setting.threads);
  REQUIRE(backend.status.ok());
  const auto out_rows = static_cast<std::int32_t>(outputs), cols = static_cast<std::int32_t>(inputs);
  const sdk::HostMatrix whole{bf16 ? static_cast<const void*>(narrow.data()) : w.data(),
                              bf16 ? sdk::DType::bf16 : sdk::DType::f32, out_rows, cols};
  const sdk::Linear* weight = nullptr;
  REQUIRE(backend->prepare_linear(&whole, 1, with_bias ? bias.data() : nullptr, &weight).ok());
  std::vector<float> x = random_floats(random, 33 * inputs);
  const std::vector<float> expected = naive_linear(x, w, with_bias ? bias.data() : nullptr, 33, outputs, inputs);
  for (std::int32_t rows = 1; rows <= 33; ++rows) {
    std::vector<float> y(static_cast<std::size_t>(rows) * outputs, std::nanf(""));
    REQUIRE(backend->linear(*weight, {x.data(), sdk::DType::f32, rows, cols, cols}, view(y, rows)).ok());
    const std::vector<float> head(expected.begin(), expected.begin() + static_cast<std::ptrdiff_t>(y.size()));
    CHECK_MESSAGE(equal_bits(y, head), "rows ", rows);
  }
}

TEST_CASE("a linear layer has the bits of the naive order for every row count, instruction set and thread count") {
  for (const Setting& setting : settings())
    for (const bool bf16 : {false, true}) {
      check_linear(setting, bf16, 131, 1100, true);
      check_linear(setting, bf16, 64, 512, false);
      check_linear(setting, bf16, 7, 30, false);
    }
}

TEST_CASE("RMSNorm has the bits of the naive order") {
  constexpr std::uint64_t kSeed = 12;
  CAPTURE(kSeed);
  for (const std::size_t cols : {std::size_t{64}, std::size_t{256}, std::size_t{896}, std::size_t{1000}})
    for (const Setting& setting : settings()) {
      CAPTURE(setting.isa);
      tessera::Random random(kSeed);
      constexpr std::int64_t kRows = 5;
      std::vector<float> x = random_floats(random, kRows * cols), delta = random_floats(random, kRows * cols);
      const std::vector<float> weight = random_floats(random, cols);
      std::vector<float> expected(x.size()), sums(x.size()), out(x.size());
      for (std::size_t r = 0; r < kRows; ++r) {
        float lanes[256] = {};
        for (std::size_t c = 0; c < cols; ++c) {
          const float value = x[r * cols + c] + delta[r * cols + c];
          sums[r * cols + c] = value;
          lanes[c % 256] = std::fma(value, value, lanes[c % 256]);
        }
        const float inverse = 1.0f / std::sqrt(sdk::fold_256(lanes) / static_cast<float>(cols) + 1e-5f);
        for (std::size_t c = 0; c < cols; ++c) expected[r * cols + c] = (sums[r * cols + c] * inverse) * weight[c];
      }
      Backend backend(backend_cpu_descriptor, setting.isa, setting.threads);
      const sdk::Matrix added = view(delta, kRows);
      REQUIRE(backend->rms_norm({view(x, kRows), &added, weight.data(), 1e-5f, view(out, kRows)}).ok());
      CHECK(equal_bits(out, expected));
      CHECK(equal_bits(x, sums));
    }
}

TEST_CASE("exp_f32 is within 2 ulp over the whole range and exact at 0") {
  CHECK(sdk::exp_f32(0.0f) == 1.0f);
  CHECK(sdk::exp_f32(-104.5f) == 0.0f);
  CHECK(std::isinf(sdk::exp_f32(89.0f)));
  CHECK(std::isnan(sdk::exp_f32(std::nanf(""))));
  double worst = 0.0;
  for (int i = 0; i <= 1000000; ++i) {
    const float x = -103.9f + (88.7f + 103.9f) * static_cast<float>(i) * 1e-6f;
    const double exact = std::exp(static_cast<double>(x));
    const int exponent = std::max(std::ilogb(exact), -126);
    worst = std::max(worst, std::abs(sdk::exp_f32(x) - exact) / std::ldexp(1.0, exponent - 23));
  }
  CHECK(worst <= 2.0);
}

}  // namespace
}  // namespace kernel_test
