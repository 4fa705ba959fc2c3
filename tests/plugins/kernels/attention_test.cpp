// Reference attention: equal bits everywhere, close to softmax in f64, blind to everything past the causal end.
#include <algorithm>
#include <cmath>

#include "support.h"

namespace kernel_test {
namespace {

constexpr std::int32_t kHeads = 4, kKvHeads = 2, kDim = 64, kContext = 640, kLayers = 2, kLayer = 1;
constexpr float kScale = 0.125f;

struct Case {
  std::vector<float> k, v, q;
  std::vector<std::int32_t> pages, positions, row_slice;
  sdk::Slice slice{};
};

/// Rows at the positions [first, first + rows) of one sequence on scattered pages; all else in the pool is NaN.
Case make_case(std::uint64_t seed, std::int32_t first, std::int32_t rows) {
  tessera::Random random(seed);
  Case c;
  const std::int32_t last = first + rows - 1, num_pages = last / 16 + 1, pool = kContext / 16 * 2;
  const std::size_t elements = static_cast<std::size_t>(pool) * kLayers * 16 * kKvHeads * kDim;
  c.k.assign(elements, std::nanf(""));
  c.v.assign(elements, std::nanf(""));
  for (std::int32_t i = 0; i < num_pages; ++i) c.pages.push_back((i * 37 + 5) % pool);
  sdk::KvView kv{c.k.data(), c.v.data(), sdk::DType::f32, pool, kLayers, kKvHeads, kDim};
  for (std::int32_t p = 0; p <= last; ++p)
    for (std::int32_t h = 0; h < kKvHeads; ++h)
      for (std::int32_t d = 0; d < kDim; ++d) {
        const auto at =
            static_cast<std::size_t>(kv.offset(c.pages[static_cast<std::size_t>(p / 16)], kLayer, p % 16, h) + d);
        c.k[at] = random.real(-2.0f, 2.0f);
        c.v[at] = random.real(-1.0f, 1.0f);
      }
  c.q = random_floats(random, static_cast<std::size_t>(rows) * kHeads * kDim);
  for (std::int32_t r = 0; r < rows; ++r) c.positions.push_back(first + r), c.row_slice.push_back(0);
  c.slice = {0, rows, first, 0, 0, num_pages};
  return c;
}

/// Attention of the rows [begin, end) of the case in one call.
std::vector<float> attend(Case& c, const Setting& setting, std::size_t begin, std::size_t end) {
  Plugin<sdk::Backend> backend(backend_cpu_descriptor, setting.isa, setting.threads);
  Plugin<sdk::Attention> attention(attention_reference_descriptor);
  REQUIRE(attention.status.ok());
  std::size_t bytes = 0;
  const auto rows = static_cast<std::int32_t>(end - begin);
  REQUIRE(attention
              ->bind({kLayers, kHeads, kKvHeads, kDim, kScale, sdk::DType::f32}, {64, 64, 64, kContext, kContext / 16},
                     backend->context(), bytes)
              .ok());
  std::vector<float> workspace(bytes / sizeof(float)), out(static_cast<std::size_t>(rows * kHeads * kDim));
  sdk::Slice slice = c.slice;
  slice.num_rows = rows;
  slice.first_position += static_cast<std::int32_t>(begin);
  sdk::PackedRows packed{};
  packed.num_rows = rows;
  packed.num_slices = 1;
  packed.positions = c.positions.data() + begin;
  packed.row_slice = c.row_slice.data();
  packed.slices = &slice;
  packed.pages = c.pages.data();
  packed.num_pages = slice.num_pages;
  REQUIRE(attention->plan(packed).ok());
  sdk::Matrix q = view(out, rows);
  q.data = c.q.data() + begin * kHeads * kDim;
  const sdk::KvView kv{c.k.data(), c.v.data(), sdk::DType::f32, kContext / 16 * 2, kLayers, kKvHeads, kDim};
  REQUIRE(
      attention->run({q, view(out, rows), kv, kLayer, packed, workspace.data(), nullptr, 0}, backend->context()).ok());
  return out;
}

TEST_CASE("attention has equal bits on every instruction set and thread count, alone and beside other rows") {
  constexpr std::uint64_t kSeed = 21;
  CAPTURE(kSeed);
  for (const std::int32_t first : {0, 250, 505, 600}) {
    Case c = make_case(kSeed, first, 9);
    const std::vector<float> expected = attend(c, {"scalar", 1}, 0, 9);
    for (const Setting& setting : settings()) {
      CAPTURE(setting.isa);
      CHECK(equal_bits(attend(c, setting, 0, 9), expected));
      std::vector<float> alone;
      for (std::size_t r = 0; r < 9; ++r) {
        const std::vector<float> row = attend(c, setting, r, r + 1);
        alone.insert(alone.end(), row.begin(), row.end());
      }
      CHECK(equal_bits(alone, expected));
    }
  }
}

TEST_CASE("attention is close to softmax in f64 and never reads past the causal end or an unlisted page") {
  constexpr std::uint64_t kSeed = 22;
  CAPTURE(kSeed);
  constexpr std::int32_t kFirst = 515, kRows = 7;
  Case c = make_case(kSeed, kFirst, kRows);
  const std::vector<float> out = attend(c, {"auto", 2}, 0, kRows);
  const sdk::KvView kv{c.k.data(), c.v.data(), sdk::DType::f32, kContext / 16 * 2, kLayers, kKvHeads, kDim};
  double worst = 0.0;
  for (std::int32_t r = 0; r < kRows; ++r)
    for (std::int32_t h = 0; h < kHeads; ++h) {
      const auto at = static_cast<std::size_t>((r * kHeads + h) * kDim);
      double total = 0.0, sums[kDim] = {};
      for (std::int32_t p = 0; p <= kFirst + r; ++p) {
        const auto key = static_cast<std::size_t>(
            kv.offset(c.pages[static_cast<std::size_t>(p / 16)], kLayer, p % 16, h / (kHeads / kKvHeads)));
        double score = 0.0;
        for (std::size_t d = 0; d < kDim; ++d) score += static_cast<double>(c.q[at + d]) * c.k[key + d];
        const double weight = std::exp(score * kScale);
        total += weight;
        for (std::size_t d = 0; d < kDim; ++d) sums[d] += weight * c.v[key + d];
      }
      for (std::size_t d = 0; d < kDim; ++d) {
        CHECK(std::isfinite(out[at + d]));
        worst = std::max(worst, std::abs(out[at + d] - sums[d] / total));
      }
    }
  CHECK(worst < 1e-6);
}

TEST_CASE("attention refuses shapes it cannot serve") {
  Plugin<sdk::Backend> backend(backend_cpu_descriptor);
  const sdk::StepLimits limits{64, 64, 64, kContext, kContext / 16};
  std::size_t bytes = 0;
  for (const sdk::AttentionShape& shape : {sdk::AttentionShape{1, 4, 2, 48, 1.0f, sdk::DType::f32},
                                           sdk::AttentionShape{1, 4, 2, 1056, 1.0f, sdk::DType::f32},
                                           sdk::AttentionShape{1, 4, 3, 64, 1.0f, sdk::DType::f32},
                                           sdk::AttentionShape{1, 4, 2, 64, 1.0f, sdk::DType::bf16}}) {
    Plugin<sdk::Attention> attention(attention_reference_descriptor);
    CHECK(!attention->bind(shape, limits, backend->context(), bytes).ok());
  }
}

}  // namespace
}  // namespace kernel_test
