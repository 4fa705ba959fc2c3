// One tile of attention on the CPU: some neighbouring rows of a slice and the query heads of one KV head.
#pragma once
#include <cstdint>

#include "tessera/sdk/attention.h"

namespace tessera_exact {

inline constexpr std::int32_t kMostPairs = 64;  // (row, query head) pairs of a tile

struct TileTask {
  std::int32_t slice;
  std::int32_t row;  // first row, within the slice
  std::int32_t kv_head;
};

/// How tiles are cut; no choice changes the bits of the exact order.
struct Tiling {
  std::int32_t rows;   // of a tile
  std::int32_t keys;   // staged at a time, a multiple of 16
  bool cache;          // copy the page table first
  const float* own_k;  // hybrid: the step's own K and V, [rows][kv_heads * head_dim]; else null
  const float* own_v;
};

/// One worker's memory, aligned to 64 bytes. `pairs` = rows * query heads of a KV head.
struct TileScratch {
  float* panel;         // [head_dim][keys]: K of the staged positions, transposed
  float* scores;        // [pairs][stride]
  float* values;        // [pairs][head_dim]: a segment\'s, or (online) a tile\'s
  float* running;       // [pairs][head_dim], online only
  float* queries;       // [pairs][head_dim]
  std::int32_t* table;  // copied page table
  std::int64_t stride;  // a multiple of 256, at least the longest history
};

using TileFunction = void (*)(const tessera::sdk::AttentionArgs& args, const tessera::sdk::AttentionShape& shape,
                              const Tiling& tiling, const TileTask& task, const TileScratch& scratch);

/// The reference order, and online softmax (inexact).
struct TileTable {
  TileFunction exact;
  TileFunction online;
};

namespace scalar {
extern const TileTable kTiles;
}
namespace avx2 {
extern const TileTable kTiles;
}
namespace avx512 {
extern const TileTable kTiles;
}

}  // namespace tessera_exact
