// What a backend draws and accepts by itself in rounds of speculation.
#include <cmath>
#include <limits>

#include "support.h"
#include "support/rounds_program.h"

namespace kernel_test {
namespace {

using rounds_program::kRows;
using rounds_program::kSequences;
using rounds_program::kVocab;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

/// Rows of logits whose best token is `best`.
std::vector<float> rows_of(const std::vector<std::int32_t>& best) {
  std::vector<float> logits(best.size() * kVocab);
  for (std::size_t row = 0; row < best.size(); ++row) logits[row * kVocab + static_cast<std::size_t>(best[row])] = 1;
  return logits;
}

float& at(std::vector<float>& logits, std::int32_t row, std::int32_t token) {
  return logits[static_cast<std::size_t>(row) * kVocab + static_cast<std::size_t>(token)];
}

TEST_CASE("a round confirms the candidates that the verification draws, and begins the next one there") {
  Plugin<sdk::Backend> cpu(backend_cpu_descriptor);
  REQUIRE(cpu.status.ok());
  rounds_program::Program program(*cpu.operator->());
  // Drafts: [row][sequence]. Sequence 0 is right throughout, 1 wrong at once, 2 at its second place, 3 right by ties.
  const auto drafts = rows_of({10, 20, 30, 40, 11, 21, 31, 41});
  auto verified = rows_of({10, 11, 12, 99, 21, 22, 30, 98, 32, 1000, 1001, 42});
  at(verified, 9, 40) = 1;  // as good as 1000, and lower
  at(verified, 10, 41) = 1;
  auto told = program.round(0, drafts, verified);
  CHECK(told.tokens == std::vector<std::int32_t>{6, 40, 41, 5, 30, 31, 4, 20, 21, 3, 10, 11});
  CHECK(told.positions == std::vector<std::int32_t>{10, 11, 12, 9, 10, 11, 8, 9, 10, 7, 8, 9});
  CHECK(told.first_positions == std::vector<std::int32_t>{10, 9, 8, 7});
  const std::vector<std::vector<std::int32_t>> wanted{{10, 11, 12}, {99}, {30, 98}, {40, 41, 42}};
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    const sdk::RoundAnswer& answer = told.answers[i];
    const auto count = static_cast<std::int32_t>(wanted[i].size());
    CHECK(answer.confirmed == count - 1);
    CHECK(answer.position == 7 + static_cast<std::int32_t>(i) + count);
    CHECK(std::vector<std::int32_t>(answer.tokens, answer.tokens + count) == wanted[i]);
  }
  told = program.round(1, drafts, verified);  // the frontiers are the device's own
  CHECK(told.tokens[9] == 12);
  CHECK(told.tokens[6] == 99);
  CHECK(told.first_positions == std::vector<std::int32_t>{13, 11, 9, 10});
}

TEST_CASE("a row that gives no token says so, and what follows it stays within the vocabulary") {
  Plugin<sdk::Backend> cpu(backend_cpu_descriptor);
  REQUIRE(cpu.status.ok());
  rounds_program::Program program(*cpu.operator->());
  auto drafts = rows_of({10, 20, 30, 40, 11, 21, 31, 41});
  auto verified = rows_of({10, 11, 12, 20, 21, 22, 30, 31, 32, 40, 41, 42});
  at(verified, 0, kVocab - 1) = NAN;                                          // beside the best
  for (std::int32_t i = 0; i < kVocab; ++i) at(verified, 4, i) = -kInfinity;  // sequence 1, second row
  at(drafts, 2, 0) = NAN;                                                     // sequence 2 drafts nothing: 0
  at(verified, 6, 0) = 1;                                                     // ... which ties with 30 and is lower
  for (std::int32_t i = 0; i < kVocab; ++i) at(verified, 9, i) = i == 40 ? -0.0f : i < 40 ? -1.0f : 0.0f;
  const auto told = program.round(0, drafts, verified);
  CHECK(told.answers[0].confirmed == 0);
  CHECK(told.answers[0].tokens[0] == -1);
  CHECK(told.answers[1].confirmed == 1);
  CHECK(told.answers[1].tokens[0] == 20);
  CHECK(told.answers[1].tokens[1] == -1);
  CHECK(told.answers[2].confirmed == 2);
  CHECK(told.answers[2].tokens[0] == 0);
  CHECK(told.answers[3].tokens[0] == 40);  // zeros of both signs are equal
  const auto next = program.round(1, drafts, verified);
  CHECK(next.tokens[9] == 0);
  CHECK(next.tokens[6] == 0);
  static_assert(kSequences == 4 && kRows == 3);
}

}  // namespace
}  // namespace kernel_test
