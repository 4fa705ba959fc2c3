// Everything but linear layers. Orders of operations: docs/numerics.md. All enqueue on `stream` and return its error.
#pragma once
#include <cuda_runtime.h>

#include "linear.h"
#include "tessera/sdk/backend.h"

namespace tessera_cuda {

cudaError_t embed(const PackedLinear& table, const tessera::sdk::PackedRows& rows, const tessera::sdk::Matrix& out,
                  cudaStream_t stream);
cudaError_t rms_norm(const tessera::sdk::NormArgs& args, cudaStream_t stream);
cudaError_t rotary_append(const tessera::sdk::RotaryArgs& args, cudaStream_t stream);
cudaError_t swiglu(const tessera::sdk::Matrix& gate_up, const tessera::sdk::Matrix& out, cudaStream_t stream);
cudaError_t gather(const tessera::sdk::Matrix& x, const tessera::sdk::Matrix* delta,
                   const tessera::sdk::PackedRows& rows, const tessera::sdk::Matrix& out, cudaStream_t stream);
cudaError_t load_states(const tessera::sdk::Matrix& bank, const tessera::sdk::PackedRows& rows,
                        const tessera::sdk::Matrix& out, cudaStream_t stream);
cudaError_t store_states(const tessera::sdk::Matrix& x, const tessera::sdk::PackedRows& rows,
                         const tessera::sdk::Matrix& bank, cudaStream_t stream);
/// `copies` in device memory.
cudaError_t copy_kv(const tessera::sdk::KvView& kv, const tessera::sdk::KvCopy* copies, std::int32_t count,
                    cudaStream_t stream);

}  // namespace tessera_cuda
