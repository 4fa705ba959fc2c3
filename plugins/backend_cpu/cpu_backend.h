// The CPU backend: host memory, a thread pool, and the kernels of the best instruction set the CPU has.
#pragma once
#include <memory>
#include <vector>

#include "kernels.h"
#include "rounds.h"
#include "tessera/sdk/backend.h"
#include "tessera/sdk/host.h"
#include "thread_pool.h"

namespace tessera_cpu {

class CpuBackend final : public tessera::sdk::Backend {
 public:
  /// Options: threads (auto or 1..256), isa (auto, scalar, avx2, avx512).
  CpuBackend(tessera::sdk::Host& host, tessera::sdk::Status& status);
  virtual ~CpuBackend();

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
  tessera::sdk::Rounds* rounds() noexcept override { return &rounds_; }

 private:
  struct Weight : tessera::sdk::Linear {
    PackedLinear packed;
  };
  struct Block {
    void* data;
    std::size_t bytes;
  };

  tessera::sdk::CpuIsa isa_ = tessera::sdk::CpuIsa::scalar;
  const KernelTable* kernels_ = nullptr;
  std::unique_ptr<ThreadPool> pool_;
  CpuRounds rounds_;
  std::vector<Block> blocks_;
  std::vector<std::unique_ptr<Weight>> weights_;
};

}  // namespace tessera_cpu
