#include "bench/attention_corpus.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "base/random.h"

namespace tessera {
namespace {

constexpr std::int32_t kMaxFuzzRows = 257;
constexpr std::int32_t kMaxFuzzStart = 767;

/// Collects cases; profiles rotate and each case gets a seed of its own.
class Corpus {
 public:
  Corpus(std::uint64_t seed, std::uint64_t stream) : random_(seed, stream) {}

  AttentionCase& add(std::string name, std::vector<RowRange> slices, const AttentionGeometry& geometry = {}) {
    const Profile profile = kProfiles[cases_.size() % std::size(kProfiles)];
    const std::uint64_t seed = random_.bits_64();
    cases_.push_back({std::move(name), geometry, std::move(slices), profile, seed, false});
    return cases_.back();
  }
  std::vector<AttentionCase> take() { return std::move(cases_); }

 private:
  Random random_;
  std::vector<AttentionCase> cases_;
};

std::vector<RowRange> repeated(std::int32_t count, RowRange slice) {
  return std::vector<RowRange>(static_cast<std::size_t>(count), slice);
}

std::int32_t between(Random& random, std::int32_t low, std::int32_t high) {
  return low + static_cast<std::int32_t>(random.below(static_cast<std::uint32_t>(high - low + 1)));
}

}  // namespace

std::vector<AttentionCase> fixed_cases(std::uint64_t seed) {
  Corpus corpus(seed, 1);
  for (const std::int32_t start :
       {0, 1, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129, 255, 256, 257, 511, 512, 513, 1023})
    corpus.add(fmt::format("row-at-{}", start), {{start, 1}}).poison = true;
  for (const std::int32_t start : {1, 15, 16, 17, 63, 64, 127, 128, 255, 512, 960})
    corpus.add(fmt::format("3x64-at-{}", start), repeated(3, {start, 64})).poison = true;
  for (const std::int32_t rows : {1, 16, 32, 64, 128, 256, 512, 768, 941, 1024})
    corpus.add(fmt::format("single-{}", rows), {{0, rows}});
  for (const RowRange shape : {RowRange{16, 16}, {8, 32}, {4, 64}, {4, 128}, {4, 256}, {8, 128}, {2, 512}})
    corpus.add(fmt::format("{}x{}", shape.start, shape.length), repeated(shape.start, {0, shape.length}));
  for (const char* profile : {"normal", "zeros", "mixed", "growing"})
    corpus.add(fmt::format("ragged-{}", profile), {{0, 17}, {15, 33}, {255, 129}, {512, 257}});
  auto cases = corpus.take();
  for (std::size_t i = 0; i < std::size(kProfiles); ++i) cases[cases.size() - 4 + i].profile = kProfiles[i];
  return cases;
}

AttentionCase fuzz_case(std::uint64_t seed, std::int32_t index) {
  Random random(seed, 1000 + static_cast<std::uint64_t>(index));
  const std::int32_t count = between(random, 1, 16);
  std::int64_t budget = between(random, 4'000, 62'000);  // causal pairs
  std::vector<RowRange> slices;
  for (std::int32_t i = 0; i < count; ++i) {
    RowRange slice{between(random, 0, kMaxFuzzStart), between(random, 1, kMaxFuzzRows)};
    // Half of what is left, so that the last slice still gets some.
    const std::int64_t share = std::max<std::int64_t>(1, i + 1 < count ? budget / 2 : budget);
    while (slice.length > 1 && causal_pairs({slice}) > share) slice.length = slice.length * 7 / 8;
    budget = std::max<std::int64_t>(0, budget - causal_pairs({slice}));
    slices.push_back(slice);
  }
  for (std::size_t i = slices.size(); i > 1; --i)  // the large ones anywhere
    std::swap(slices[i - 1], slices[random.below(static_cast<std::uint32_t>(i))]);
  const Profile profile = kProfiles[static_cast<std::size_t>(index) % std::size(kProfiles)];
  const std::uint64_t own = random.bits_64();
  return {fmt::format("fuzz-{:03}", index), {}, std::move(slices), profile, own, false};
}

std::vector<AttentionCase> geometry_cases(std::uint64_t seed) {
  Corpus corpus(seed, 2);
  for (const std::int32_t dim : {32, 64, 80, 96, 128, 256}) {
    const AttentionGeometry geometry{8, 2, dim, 2, 1};
    corpus.add(fmt::format("head-{}-ragged", dim), {{0, 17}, {15, 33}, {255, 9}}, geometry);
    corpus.add(fmt::format("head-{}-row-at-511", dim), {{511, 1}}, geometry);
  }
  for (const auto& [q_heads, kv_heads] : {std::pair(4, 4), {4, 2}, {6, 2}, {8, 2}, {16, 2}, {16, 1}}) {
    const AttentionGeometry geometry{q_heads, kv_heads, 64, 2, 0};
    const std::int32_t ratio = q_heads / kv_heads;
    corpus.add(fmt::format("ratio-{}-ragged", ratio), {{0, 17}, {15, 33}, {255, 9}}, geometry);
    corpus.add(fmt::format("ratio-{}-row-at-300", ratio), {{300, 1}}, geometry);
  }
  return corpus.take();
}

std::vector<AttentionCase> long_cases(std::uint64_t seed) {
  Corpus corpus(seed, 3);
  for (const std::int32_t end : {2'048, 4'096, 8'192, 16'384, 32'768})
    corpus.add(fmt::format("end-of-{}", end), {{end - 3, 3}});
  corpus.add("row-at-32767", {{32'767, 1}});
  corpus.add("unequal-to-20000", {{0, 5}, {19'998, 2}, {1'000, 17}, {0, 1}, {4'090, 3}});
  return corpus.take();
}

std::vector<AttentionCase> invariance_cases(std::uint64_t seed) {
  constexpr std::int32_t kCases = 13, kSlices = 4;
  Corpus corpus(seed, 4);
  Random random(seed, 5);
  for (std::int32_t i = 0; i < kCases; ++i) {
    std::vector<RowRange> slices;
    for (std::int32_t s = 0; s < kSlices; ++s) slices.push_back({between(random, 0, 300), between(random, 2, 24)});
    if (i % 4 == 0) slices[0].start = 250 + between(random, 0, 10);  // rows of two segments in one slice
    if (i % 4 == 1) slices[1] = {500, 1};                            // a decode row among prompts
    if (i % 4 == 2) slices[2].start = 0;
    corpus.add(fmt::format("invariance-{}", i), std::move(slices));
  }
  return corpus.take();
}

FixtureLimits limits_for(const std::vector<AttentionCase>& cases) {
  FixtureLimits limits{1, 1, 1, 1};
  for (const AttentionCase& one : cases) {
    std::int64_t pages = 0;
    for (const RowRange& slice : one.slices) {
      limits.max_context = std::max(limits.max_context, slice.start + slice.length);
      pages += (slice.start + slice.length + sdk::kPageSize - 1) / sdk::kPageSize + 1;
    }
    limits.max_pages = std::max(limits.max_pages, pages);
    limits.max_rows = std::max(limits.max_rows, static_cast<std::int32_t>(num_rows(one.slices)));
    limits.max_slices = std::max(limits.max_slices, static_cast<std::int32_t>(one.slices.size()));
  }
  return limits;
}

}  // namespace tessera
