// Attention on a GPU in the order of docs/numerics.md, "Attention": one block a (row, query head).
#pragma once
#include <cuda_runtime.h>

#include "tessera/sdk/attention.h"
#include "tessera/sdk/cuda.h"

namespace tessera_reference {

cudaError_t attend_cuda(const tessera::sdk::AttentionArgs& args, const tessera::sdk::AttentionShape& shape,
                        cudaStream_t stream);
void list_kernels(tessera::sdk::KernelList& list);

}  // namespace tessera_reference
