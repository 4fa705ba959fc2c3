// Between the plugin's host code and its kernels: plain data, no CUDA types but the stream.
#pragma once
#include <cstdint>

#include "tessera/sdk/batch.h"
#include "tessera/sdk/device.h"
#include "tessera/sdk/status.h"
#include "units.h"

namespace tessera::sdk {
class KernelList;
}

namespace tessera_exact {

/// One layer of one step. Pointers are in device memory.
struct StepArgs {
  const float* q;  // [rows][q_stride]
  std::int64_t q_stride;
  float* out;  // [rows][out_stride]
  std::int64_t out_stride;
  const float* k;  // the layer's part of page 0; pages are `page_stride` floats apart
  const float* v;
  std::int64_t page_stride;
  const tessera::sdk::Slice* slices;
  const std::int32_t* positions;  // [rows]
  const std::int32_t* row_slice;  // [rows]
  const std::int32_t* pages;
  std::int32_t num_rows;
  std::int32_t num_slices;
  std::int32_t q_heads;
  std::int32_t kv_heads;
  std::int32_t group;  // query heads of a KV head
  std::int32_t head_dim;
  float scale;
  float* emitted;  // scores for the caller, or null
  std::int64_t emitted_stride;
};

// The segment kernels (segment.cuh), which `auto` uses.

struct SegmentArgs : StepArgs {
  std::int32_t tile_rows;  // rows of a unit
  // Of tiles with several segments, for each unit of a launch:
  float* regions;           // [unit][pairs * 256]: scores, then the segment's values [pair][head_dim]
  float* unit_largest;      // [unit][pairs]
  float* unit_sums;         // [unit][pairs]
  std::uint32_t* arrivals;  // [unit] zero between launches
};

/// (row, head) pairs of a unit. More of them share a staged key; fewer give more blocks.
inline constexpr std::int32_t kManyPairs = 32;
inline constexpr std::int32_t kFewPairs = 16;

/// Units of one launch. The lists are null when there are few units: then each block finds its own, and all count as
/// multiple.
struct UnitRange {
  const Unit* single_units;
  const Unit* multiple_units;
  std::int32_t singles;
  std::int32_t multiples;
  bool values;   // some unit's tile has several segments
  bool overlap;  // the second kernel may start while the first one ends (compute capability 9.0 on)
};

/// head_dim 32, 64, 96 and 128, and up to 16 query heads a KV head.
bool segments_serve(std::int32_t head_dim, std::int32_t group);
std::int64_t segment_shared_bytes(std::int32_t head_dim);
/// Raises the kernels' shared-memory limits once.
tessera::sdk::Status prepare_segments(std::int32_t head_dim);

void list_schedule(tessera::sdk::KernelList& list);
void list_segments(std::int32_t head_dim, std::int32_t pairs, bool values, tessera::sdk::KernelList& list);

/// Writes the step's units: `singles` of tiles with one segment, then the others. `offsets` is scratch, one a slice.
tessera::sdk::Status launch_schedule(const SegmentArgs& args, std::int32_t singles, std::int32_t* offsets, Unit* units,
                                     void* stream);
/// The scores of all units of the range, and the outputs of single ones; then, if any, the values of the multiple ones.
tessera::sdk::Status launch_segments(const SegmentArgs& args, const UnitRange& range, std::int32_t pairs, void* stream);

// Long histories of few rows (stream.cu): every slice is one tile of up to kStreamPairs pairs.

inline constexpr std::int32_t kStreamPairs = 8;

/// Units of one launch, in find_unit's order; scratch counts from `first`. Blocks beyond the step's last unit end.
struct StreamRange {
  std::int32_t first;
  std::int32_t blocks;
};
/// `pairs`, the scratch's, is 1, 2, 4 or 8.
tessera::sdk::Status launch_stream(const SegmentArgs& args, const StreamRange& range, std::int32_t pairs, bool overlap,
                                   void* stream);
void list_stream(std::int32_t head_dim, std::int32_t pairs, tessera::sdk::KernelList& list);

// Short rows (short.cu): for head sizes of the segment kernels, when no row sees more than kShort positions.

inline constexpr std::int32_t kShort = 32;
tessera::sdk::Status launch_short(const StepArgs& args, void* stream);
void list_short(std::int32_t head_dim, tessera::sdk::KernelList& list);

// The published tiled families (tiled.cuh).

struct TiledArgs : StepArgs {
  std::int32_t tile_rows;  // rows of one request that share a tile; tile_rows * group warps a block, 32 at most
  std::int32_t tile_keys;  // 16, 32 or 64
  std::int32_t max_rows;   // of a slice of this step
  std::int32_t capacity;  // scores of a (row, head) kept in shared memory; when a history is longer, 256 and recomputed
  std::int32_t table;     // page table entries copied to shared memory first (cache); 0 = none
  float* own_k;           // hybrid: [rows][kv_heads * head_dim], the step's own K and V; else null
  float* own_v;
};

/// Shared memory of a block, and what is worth asking for.
std::int64_t tiled_shared_bytes(const TiledArgs& args, bool online);
inline constexpr std::int64_t kMostSharedBytes = 96 * 1024;  // more would leave a multiprocessor one small block
inline constexpr std::int32_t kMostWarps = 32;               // of a block

tessera::sdk::Status prepare_tiled(std::int32_t head_dim, std::int64_t most_shared_bytes);
tessera::sdk::Status launch_tiled(const TiledArgs& args, bool online, void* stream);
void list_tiled(const TiledArgs& args, bool online, bool hybrid, tessera::sdk::KernelList& list);

}  // namespace tessera_exact
