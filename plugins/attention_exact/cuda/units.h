// How a packed step is cut into pieces of attention work, the same on host and device.
#pragma once
#include <cstdint>

#include "tessera/sdk/batch.h"
#include "tessera/sdk/numerics.h"

namespace tessera_exact {

/// One block's work: some neighbouring rows of a slice, the query heads of one KV head, one segment of 256 positions.
/// The units of one (tile, KV head) are neighbours, segments ascending.
struct Unit {
  std::int32_t slice;
  std::int32_t row;  // first row of the tile, within the slice
  std::int32_t kv_head;
  std::int32_t segment;
  std::int32_t segments;  // of this tile
};

/// Positions that the last row of the tile from `row` on sees.
TESSERA_INLINE std::int32_t tile_length(const tessera::sdk::Slice& slice, std::int32_t row, std::int32_t tile_rows) {
  const std::int32_t end = row + tile_rows;
  return slice.first_position + (end < slice.num_rows ? end : slice.num_rows);
}

TESSERA_INLINE std::int32_t segments_of(std::int32_t length) {
  return (length + tessera::sdk::kAttentionSegment - 1) / tessera::sdk::kAttentionSegment;
}

}  // namespace tessera_exact
