// loop_reference on a GPU: the CPU's bits. A selection is one block a (row, query head); everything that walks a list
// is cut at its segments of 256 ranks, a warp each, and merged in ascending order.
#pragma once
#include <cuda_runtime.h>

#include "tessera/sdk/sparse_decode.h"

namespace tessera_loop {

/// References of all slots, in device memory: [slot][layer][head], then head_dim floats each of outputs, contributions.
struct Store {
  std::int32_t* counts;
  float* masses;
  float* outputs;
  float* contributions;
  std::int32_t* lists;    // [list page][layer][head][kListPage]
  std::int64_t capacity;  // positions of a selection at most
};

/// Scratch of one call, for each (row, head) of it.
struct Scratch {
  std::uint32_t* largest;                 // [1] the largest score, as an ascending key
  float* scores;                          // [capacity] consume: of the selected positions
  float* whole_sums;                      // [whole_segments] capture: of all positions
  float* sums;                            // [segments] of the selected ones
  float* vectors;                         // [segments][head_dim]
  std::int32_t segments, whole_segments;  // room for one history of the longest context
};

struct Call {
  tessera::sdk::SparseArgs args;
  tessera::sdk::AttentionShape shape;
  Store store;
  Scratch scratch;
  double retention;
  std::int32_t longest;    // history of these rows
  std::int64_t few_units;  // of fewer segments work is cut finer: it waits for memory then, not for its turn. Every sum
                           // keeps its order
};

/// Once, before the first launch: what a block may ask for. `shared_bytes` is what the device gives it.
cudaError_t prepare_select(std::int64_t shared_bytes);
/// Counts, ascending lists, largest scores and sums over all positions of the captured rows.
cudaError_t launch_select(const Call& call, std::int64_t shared_bytes, cudaStream_t stream);
/// After it: O_ref, C_ref and the masses.
cudaError_t launch_capture(const Call& call, cudaStream_t stream);
cudaError_t launch_consume(const Call& call, cudaStream_t stream);

}  // namespace tessera_loop
