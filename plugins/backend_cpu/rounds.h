// Rounds of speculation on the CPU: what the device knows lies in host memory, and every call is over when it returns.
#pragma once
#include <vector>

#include "tessera/sdk/rounds.h"

namespace tessera_cpu {

class CpuRounds final : public tessera::sdk::Rounds {
 public:
  tessera::sdk::Status bind(const tessera::sdk::RoundLimits& limits) noexcept override;
  tessera::sdk::Status begin(std::int32_t bank, const tessera::sdk::RoundSequence* sequences,
                             std::int32_t count) noexcept override;
  tessera::sdk::Status stage(std::int32_t bank, std::int32_t pass, const tessera::sdk::PackedRows& host,
                             const tessera::sdk::RowSource* rows, const tessera::sdk::RowSource* slices,
                             tessera::sdk::PackedRows* device) noexcept override;
  tessera::sdk::Status place(std::int32_t pass, const tessera::sdk::PackedRows& device) noexcept override;
  tessera::sdk::Status draw(std::int32_t pass, const tessera::sdk::PackedRows& device,
                            const tessera::sdk::Matrix& logits, bool verified) noexcept override;
  tessera::sdk::Status accept(std::int32_t count) noexcept override;
  tessera::sdk::Status send(std::int32_t bank, std::int32_t count) noexcept override;
  tessera::sdk::Status receive(std::int32_t bank, tessera::sdk::RoundAnswer* answers,
                               std::int32_t count) noexcept override;

 private:
  struct Pass {
    std::vector<std::int32_t> tokens, positions, row_slice, logit_rows, pages, states, references, list_pages,
        list_first;
    std::vector<tessera::sdk::Slice> slices;
    std::vector<tessera::sdk::RowSource> row_sources, slice_sources;
  };
  struct Frontier {
    std::int32_t token, position;
  };
  /// [sequence][kMostRoundRows]
  std::int32_t& candidate(const tessera::sdk::RowSource& at) { return candidates_[index_of(at)]; }
  std::int32_t& target(const tessera::sdk::RowSource& at) { return targets_[index_of(at)]; }
  static std::size_t index_of(const tessera::sdk::RowSource& at) {
    return static_cast<std::size_t>(at.sequence) * tessera::sdk::kMostRoundRows + static_cast<std::size_t>(at.offset);
  }

  tessera::sdk::RoundLimits limits_{};
  std::vector<Pass> passes_;
  std::vector<Frontier> frontiers_;
  std::vector<tessera::sdk::RoundSequence> sequences_;  // of the round begun last
  std::vector<std::int32_t> candidates_, targets_;      // likewise; candidates begin with the frontier's token
  std::vector<tessera::sdk::RoundAnswer> answers_;
  std::vector<std::vector<tessera::sdk::RoundAnswer>> banks_;
};

}  // namespace tessera_cpu
