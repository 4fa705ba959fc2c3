// A round of speculation without a model: the logits are given, and what the backend makes of them is told.
#pragma once
#include <doctest/doctest.h>

#include <cstdint>
#include <vector>

#include "tessera/sdk/backend.h"

namespace rounds_program {

namespace sdk = tessera::sdk;

inline constexpr std::int32_t kSequences = 4, kRows = 3, kVocab = 1100;
inline constexpr std::int32_t kPasses = kRows;  // two of drafts, and the verification

struct Told {
  std::vector<std::int32_t> tokens, positions, first_positions;  // of the verification's rows and slices
  std::vector<sdk::RoundAnswer> answers;
};

inline void must(const sdk::Status& status) { REQUIRE_MESSAGE(status.ok(), status.message); }

template <class T>
std::vector<T> fetch(sdk::Backend& backend, const T* device, std::size_t count) {
  std::vector<T> host(count);
  must(backend.download(host.data(), device, count * sizeof(T)));
  return host;
}

class Program {
 public:
  /// Bound; outlives the program.
  explicit Program(sdk::Backend& backend) : backend_(backend), rounds_(*backend.rounds()) {
    const sdk::StepLimits step{kSequences * kRows, kSequences, kSequences * kRows, 64, 64};
    must(rounds_.bind({.step = step, .rows = kRows, .passes = kPasses, .banks = 2, .frontiers = 10}));
    must(backend_.allocate(sizeof(float) * kSequences * kRows * kVocab, &logits_));
  }

  /// `drafts` [kRows - 1][kSequences][kVocab], `verified` [kSequences][kRows][kVocab]. The first round begins at
  /// tokens 3, 4, ... and positions 7, 8, ...; others where the last one ended.
  Told round(std::int32_t number, const std::vector<float>& drafts, const std::vector<float>& verified) {
    std::vector<sdk::RoundSequence> sequences;
    for (std::int32_t i = 0; i < kSequences; ++i) sequences.push_back({9 - i, number == 0 ? 1 : 0, 3 + i, 7 + i});
    must(rounds_.begin(number % 2, sequences.data(), kSequences));
    for (std::int32_t pass = 0; pass + 1 < kPasses; ++pass)
      (void)run(number, pass, 1, drafts.data() + static_cast<std::size_t>(pass) * kSequences * kVocab);
    const sdk::PackedRows rows = run(number, kPasses - 1, kRows, verified.data());
    must(rounds_.accept(kSequences));
    must(rounds_.send(number % 2, kSequences));
    Told told{
        fetch(backend_, rows.tokens, kSequences * kRows), fetch(backend_, rows.positions, kSequences * kRows), {}, {}};
    for (const sdk::Slice& slice : fetch(backend_, rows.slices, kSequences))
      told.first_positions.push_back(slice.first_position);
    told.answers.resize(kSequences);
    must(rounds_.receive(number % 2, told.answers.data(), kSequences));
    return told;
  }

 private:
  /// Rows of all sequences, the last sequence first: their place in the pass is not their number.
  sdk::PackedRows run(std::int32_t number, std::int32_t pass, std::int32_t rows, const float* logits) {
    std::vector<std::int32_t> zeros(kSequences * kRows), row_slice, logit_rows;
    std::vector<sdk::Slice> slices;
    std::vector<sdk::RowSource> row_sources, slice_sources;
    std::vector<float> packed;
    const std::int32_t first = rows == 1 ? pass : 0;
    for (std::int32_t i = 0; i < kSequences; ++i) {
      const std::int32_t sequence = kSequences - 1 - i;
      slices.push_back({i * rows, rows, 50, 0, i, 1});
      slice_sources.push_back({sequence, first});
      for (std::int32_t row = 0; row < rows; ++row) {
        row_slice.push_back(i), logit_rows.push_back(i * rows + row);
        row_sources.push_back({sequence, first + row});
        const float* source = logits + static_cast<std::ptrdiff_t>(sequence * rows + row) * kVocab;
        packed.insert(packed.end(), source, source + kVocab);
      }
    }
    const std::int32_t count = kSequences * rows;
    const sdk::PackedRows host{.num_rows = count,
                               .num_slices = kSequences,
                               .tokens = zeros.data(),
                               .positions = zeros.data(),
                               .row_slice = row_slice.data(),
                               .slices = slices.data(),
                               .pages = zeros.data(),
                               .num_pages = kSequences,
                               .logit_rows = logit_rows.data(),
                               .num_logit_rows = count};
    sdk::PackedRows device{};
    must(rounds_.stage(number % 2, pass, host, row_sources.data(), slice_sources.data(), &device));
    must(rounds_.place(pass, device));
    must(backend_.upload(logits_, packed.data(), packed.size() * sizeof(float)));
    must(rounds_.draw(pass, device, {logits_, sdk::DType::f32, count, kVocab, kVocab}, rows > 1));
    return device;
  }

  sdk::Backend& backend_;
  sdk::Rounds& rounds_;
  void* logits_ = nullptr;
};

}  // namespace rounds_program
