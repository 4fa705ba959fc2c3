// The arithmetic of loop_reference for one (row, query head). Order of operations: docs/numerics.md, "Sparse decoding".
#pragma once
#include <cstdint>

#include "tessera/sdk/sparse_decode.h"

namespace tessera_loop {

/// An index list on the pages of its row: entry i is entries[pages[i / kListPage] * stride + i % kListPage].
struct List {
  std::int32_t* entries;      // of its layer and head on page 0
  const std::int32_t* pages;  // of the row
  std::int64_t stride;        // from a page to the next
};

/// Where one (slot, layer, head) keeps its reference.
struct Reference {
  std::int32_t* count;  // of selected positions
  float* mass;          // their share of the attention, m
  float* output;        // [head_dim] what attention gave, O_ref
  float* contribution;  // [head_dim] their part of it, C_ref
  List selected;        // [count] ascending
};

/// Scratch of one worker, for `max_context` positions.
struct Scratch {
  std::uint64_t* keys;
  float* scores;
};

/// One (row, head) of a call.
struct Item {
  const tessera::sdk::SparseArgs* args;
  const tessera::sdk::AttentionShape* shape;
  std::int32_t row, head;
  std::int32_t retained;  // capture: how many positions to keep
  Reference reference;
  Scratch scratch;
};

using ItemFunction = void (*)(const Item& item);
struct Kernels {
  ItemFunction capture, consume;
};

namespace scalar {
extern const Kernels kKernels;
}
namespace avx2 {
extern const Kernels kKernels;
}
namespace avx512 {
extern const Kernels kKernels;
}

}  // namespace tessera_loop
