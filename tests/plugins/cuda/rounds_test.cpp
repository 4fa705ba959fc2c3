// Rounds of speculation: what the GPU draws and accepts is what the CPU does.
#include <algorithm>
#include <cmath>
#include <limits>

#include "support.h"
#include "support/rounds_program.h"

namespace cuda_test {
namespace {

using namespace rounds_program;

TEST_CASE("CUDA rounds draw, accept and go on as the CPU's, over ties, NaN and rows without a token") {
  if (!gpu_is_there()) return;
  constexpr std::uint64_t kSeed = 61;
  CAPTURE(kSeed);
  tessera::Random random(kSeed);
  const Side cpu("cpu"), cuda("cuda");
  Program wanted(*cpu.operator->()), found(*cuda.operator->());
  std::int32_t confirmed = 0, nothing = 0;
  for (std::int32_t round = 0; round < 40; ++round) {
    CAPTURE(round);
    // Few values, so that every row has ties; most rows verify what was drafted.
    auto drafts = random_floats(random, std::size_t{kRows - 1} * kSequences * kVocab);
    for (float& logit : drafts) logit = std::round(logit * 8);
    auto verified = random_floats(random, std::size_t{kSequences} * kRows * kVocab);
    for (float& logit : verified) logit = std::round(logit * 8);
    for (std::int32_t sequence = 0; sequence < kSequences; ++sequence)
      for (std::int32_t row = 0; row < kRows; ++row) {
        const auto to = verified.begin() + static_cast<std::ptrdiff_t>(sequence * kRows + row) * kVocab;
        const std::uint32_t kind = random.below(8);
        if (kind == 0) to[static_cast<std::ptrdiff_t>(random.below(kVocab))] = NAN;
        if (kind == 1) std::fill_n(to, kVocab, -std::numeric_limits<float>::infinity());
        if (kind > 2 && row + 1 < kRows)
          std::copy_n(drafts.begin() + static_cast<std::ptrdiff_t>(row * kSequences + sequence) * kVocab, kVocab, to);
      }
    const Told a = wanted.round(round, drafts, verified), b = found.round(round, drafts, verified);
    CHECK(a.tokens == b.tokens);
    CHECK(a.positions == b.positions);
    CHECK(a.first_positions == b.first_positions);
    for (std::size_t i = 0; i < kSequences; ++i) {
      const sdk::RoundAnswer &one = a.answers[i], &other = b.answers[i];
      REQUIRE(one.confirmed == other.confirmed);
      CHECK(one.position == other.position);
      CHECK(std::equal(one.tokens, one.tokens + one.confirmed + 1, other.tokens));
      confirmed += one.confirmed;
      nothing += one.tokens[one.confirmed] < 0 ? 1 : 0;
    }
  }
  CHECK(confirmed > 40);
  CHECK(nothing > 10);
}

}  // namespace
}  // namespace cuda_test
