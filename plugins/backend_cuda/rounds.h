// Rounds of speculation on a GPU: frontiers, candidates and answers stay on the device; the host enqueues and waits for
// the answers of one bank alone.
#pragma once
#include <cuda_runtime.h>

#include <memory>
#include <vector>

#include "staging.h"
#include "tessera/sdk/rounds.h"

namespace tessera_cuda {

class CudaRounds final : public tessera::sdk::Rounds {
 public:
  /// The backend's, before bind.
  void open(int device, cudaStream_t stream) { device_ = device, stream_ = stream; }
  virtual ~CudaRounds();

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
  struct Frontier {
    std::int32_t token, position;
  };
  /// All device memory of the rounds, as the kernels see it.
  struct Board {
    Frontier* frontiers;                     // [slot]
    tessera::sdk::RoundSequence* sequences;  // of the round begun last
    std::int32_t *candidates, *targets;      // [sequence][kMostRoundRows]; candidates begin with the frontier's
    tessera::sdk::RoundAnswer* answers;      // [sequence]
  };
  /// Pinned, of one round in flight.
  struct Bank {
    tessera::sdk::RoundSequence* sequences = nullptr;
    tessera::sdk::RoundAnswer* answers = nullptr;
    cudaEvent_t done = nullptr;  // the answers have arrived
  };
  friend struct RoundKernels;

  tessera::sdk::RoundLimits limits_{};
  int device_ = 0;
  cudaStream_t stream_ = nullptr;
  Board board_{};
  std::vector<Bank> banks_;
  std::vector<std::unique_ptr<StepStaging>> passes_;
};

}  // namespace tessera_cuda
