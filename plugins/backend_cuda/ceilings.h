// What the device can do at most.
#pragma once
#include <cuda_runtime.h>

#include "tessera/sdk/backend.h"

namespace tessera_cuda {

/// The best of several rounds of dependent fused multiply-adds in registers, and of reading `bytes` at `memory`, which
/// should exceed the caches. `sink` is 4 bytes of device memory.
cudaError_t measure_ceilings(const void* memory, std::size_t bytes, float* sink, int processors, cudaStream_t stream,
                             tessera::sdk::Ceilings* out);

}  // namespace tessera_cuda
