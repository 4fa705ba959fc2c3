// loop_reference on a GPU: the CPU's bits, one block a (row, query head).
#pragma once
#include <cuda_runtime.h>

#include "tessera/sdk/sparse_decode.h"

namespace tessera_loop {

/// References of all slots, in device memory: [slot][layer][head], then head_dim floats or `capacity` positions each.
struct Store {
  std::int32_t* counts;
  float* masses;
  float* outputs;
  float* contributions;
  std::int32_t* selected;
  std::int64_t capacity;  // positions of a selection at most
};

struct Call {
  tessera::sdk::SparseArgs args;
  tessera::sdk::AttentionShape shape;
  Store store;
  double retention;
};

cudaError_t capture_cuda(const Call& call, cudaStream_t stream);
/// The workspace holds `capacity` floats for each (row, head).
cudaError_t consume_cuda(const Call& call, cudaStream_t stream);

}  // namespace tessera_loop
