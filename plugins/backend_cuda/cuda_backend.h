// The CUDA backend: one stream, device memory claimed at load, and kernels with the bits of docs/numerics.md.
#pragma once
#include <cuda_runtime.h>

#include <memory>
#include <unordered_map>
#include <vector>

#include "linear.h"
#include "rounds.h"
#include "staging.h"
#include "tessera/sdk/backend.h"
#include "tessera/sdk/host.h"

namespace tessera_cuda {

class CudaBackend final : public tessera::sdk::Backend {
 public:
  /// Option: device (its ordinal, 0 by default).
  CudaBackend(tessera::sdk::Host& host, tessera::sdk::Status& status);
  virtual ~CudaBackend();

  tessera::sdk::Status bind(const tessera::sdk::StepLimits& limits) noexcept override;
  tessera::sdk::DeviceContext context() noexcept override;
  tessera::sdk::Status memory(std::size_t* total, std::size_t* free) noexcept override;
  tessera::sdk::Status allocate(std::size_t bytes, void** device) noexcept override;
  tessera::sdk::Status upload(void* device, const void* host, std::size_t bytes) noexcept override;
  tessera::sdk::Status download(void* host, const void* device, std::size_t bytes) noexcept override;
  tessera::sdk::Status prepare_linear(const tessera::sdk::HostMatrix* parts, std::size_t count, const float* bias,
                                      const tessera::sdk::Linear** out) noexcept override;
  tessera::sdk::Status begin_step(const tessera::sdk::PackedRows& host,
                                  tessera::sdk::PackedRows* device) noexcept override;
  tessera::sdk::Status embed(const tessera::sdk::Linear& table, const tessera::sdk::PackedRows& rows,
                             const tessera::sdk::Matrix& out) noexcept override;
  tessera::sdk::Status rms_norm(const tessera::sdk::NormArgs& args) noexcept override;
  tessera::sdk::Status linear(const tessera::sdk::Linear& weight, const tessera::sdk::Matrix& x,
                              const tessera::sdk::Matrix& y) noexcept override;
  tessera::sdk::Status rotary_append(const tessera::sdk::RotaryArgs& args) noexcept override;
  tessera::sdk::Status swiglu(const tessera::sdk::Matrix& gate_up, const tessera::sdk::Matrix& out) noexcept override;
  tessera::sdk::Status gather(const tessera::sdk::Matrix& x, const tessera::sdk::Matrix* delta,
                              const tessera::sdk::PackedRows& rows, const tessera::sdk::Matrix& out) noexcept override;
  tessera::sdk::Status load_states(const tessera::sdk::Matrix& bank, const tessera::sdk::PackedRows& rows,
                                   const tessera::sdk::Matrix& out) noexcept override;
  tessera::sdk::Status store_states(const tessera::sdk::Matrix& x, const tessera::sdk::PackedRows& rows,
                                    const tessera::sdk::Matrix& bank) noexcept override;
  tessera::sdk::Status copy_kv(const tessera::sdk::KvView& kv, const tessera::sdk::KvCopy* copies,
                               std::int32_t count) noexcept override;

  tessera::sdk::Status measure_ceilings(tessera::sdk::Ceilings* out) noexcept override;

  tessera::sdk::Status capture_begin() noexcept override;
  tessera::sdk::Status capture_end(std::uint64_t* graph) noexcept override;
  tessera::sdk::Status replay(std::uint64_t graph) noexcept override;
  tessera::sdk::Status forget(std::uint64_t graph) noexcept override;
  tessera::sdk::Rounds* rounds() noexcept override { return &rounds_; }

 private:
  struct Weight : tessera::sdk::Linear {
    PackedLinear packed;
  };

  /// The current device belongs to a thread, and the engine's need not be the one that created this object.
  tessera::sdk::Status select() const noexcept;
  tessera::sdk::Status open_device() noexcept;
  /// Memory for the partial sums of weights of up to `segments` segments.
  tessera::sdk::Status claim_split_space(std::int32_t segments) noexcept;
  tessera::sdk::Status pack(const tessera::sdk::HostMatrix* parts, std::size_t count, const PackedLinear& packed);

  int device_ = 0;
  int processors_ = 0;
  cudaStream_t stream_ = nullptr;
  StepStaging step_;
  CopyStaging copies_;
  Downloader downloader_;
  CudaRounds rounds_;
  SplitSpace split_{};
  std::int32_t split_segments_ = 0;
  std::vector<void*> blocks_;
  std::vector<std::unique_ptr<Weight>> weights_;
  std::unordered_map<std::uint64_t, cudaGraphExec_t> graphs_;
  std::uint64_t recorded_ = 0;  // graphs so far; the last one's id
};

}  // namespace tessera_cuda
