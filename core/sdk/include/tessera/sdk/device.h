// Where a plugin's kernels run: a CUDA stream, or the backend's CPU threads.
#pragma once
#include <cstdint>
#include <type_traits>

#include "tessera/sdk/abi.h"

namespace tessera::sdk {

/// Instruction sets the CPU plugins dispatch over at run time. All of them give equal bits.
enum class CpuIsa : std::uint32_t { scalar = 0, avx2 = 1, avx512 = 2 };

/// The backend's threads. Work is split over outputs and rows, never over a sum.
class Executor {
 public:
  /// Worker count, the caller included.
  virtual std::int32_t width() const noexcept = 0;

  /// Calls task(context, begin, end) on disjoint ranges that cover [0, count), and returns when all are done.
  /// Not reentrant. `task` must not throw. Ranges may be cut anywhere: results must not depend on it.
  virtual void run(std::int64_t count, void (*task)(void* context, std::int64_t begin, std::int64_t end),
                   void* context) noexcept = 0;

 protected:
  ~Executor() = default;
};

struct DeviceContext {
  Device device;
  CpuIsa isa;          // cpu: the instruction set in use
  Executor* executor;  // cpu: never null; cuda: null
  void* stream;        // cuda: cudaStream_t; cpu: null
};

/// Calls body(i) for i in [0, count) on the executor.
template <class Body>
void parallel_for(Executor& executor, std::int64_t count, Body&& body) noexcept {
  auto task = [](void* context, std::int64_t begin, std::int64_t end) {
    auto& call = *static_cast<std::remove_reference_t<Body>*>(context);
    for (std::int64_t i = begin; i < end; ++i) call(i);
  };
  executor.run(count, task, &body);
}

}  // namespace tessera::sdk
