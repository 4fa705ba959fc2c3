// attention_exact on CUDA: chooses kernels by the variant and the step's shape. No choice changes a bit.
#include <cuda_runtime.h>

#include <algorithm>
#include <string>
#include <vector>

#include "launch.h"
#include "shape.h"
#include "tessera/sdk/attention.h"
#include "tessera/sdk/cuda.h"
#include "tessera/sdk/register.h"
#include "variants.h"

namespace tessera_exact {

namespace sdk = tessera::sdk;
using sdk::Code;
using sdk::Status;

namespace {

constexpr std::int64_t kRegionBytes = std::int64_t{128}
                                      << 20;  // scores of long histories, at most, unless one tile needs more

constexpr std::int32_t kSegmentPages = sdk::kAttentionSegment / sdk::kPageSize;

constexpr std::int32_t kFewWarps = 2;  // short rows for each block that can run: beyond, sharing keys pays

std::int32_t ceil_div(std::int32_t a, std::int32_t b) { return (a + b - 1) / b; }

constexpr std::int32_t kUnitScores = kStreamPairs * (sdk::kAttentionSegment + 2);  // floats of a streamed unit

struct UnitCounts {
  std::int32_t single = 0;    // of tiles with one segment
  std::int32_t multiple = 0;  // of the others
};

std::size_t bytes_of(std::int64_t floats) { return static_cast<std::size_t>(floats) * sizeof(float); }

}  // namespace

class ExactAttention final : public sdk::Attention {
 public:
  ExactAttention(sdk::Host& host, Status& status) : host_(host) {
    const char* name = nullptr;
    status = host.option_text("variant", "auto", &name);
    if (status.ok() && !parse_variant(name, &variant_)) status = host.refuse("variant", kVariantGrammar);
    if (status.ok()) status = host.option_int("stream_units", 0, 0, 1 << 30, &stream_units_);
  }
  virtual ~ExactAttention() {
    for (void* block : blocks_) cudaFree(block);
  }

  const char* variants() const noexcept override { return variant_list(); }
  bool exact() const noexcept override { return variant_.family != Family::online; }
  std::uint64_t fallbacks() const noexcept override { return fallbacks_; }
  std::int32_t kernels(sdk::KernelFacts* out, std::int32_t capacity) const noexcept override;

  Status bind(const sdk::AttentionShape& shape, const sdk::StepLimits& limits, const sdk::DeviceContext& device,
              std::size_t& workspace_bytes) noexcept override;
  Status plan(const sdk::PackedRows& rows) noexcept override;
  std::uint64_t topology() const noexcept override;
  Status run(const sdk::AttentionArgs& args, const sdk::DeviceContext& device) noexcept override;

 private:
  Status claim(std::int64_t bytes, void** out);
  Status bind_segments(std::size_t& workspace_bytes);
  Status bind_tiled(std::size_t& workspace_bytes);
  Status plan_segments(const sdk::PackedRows& rows);
  void plan_stream(const sdk::PackedRows& rows);
  UnitCounts count_units(const sdk::PackedRows& rows, std::int32_t pairs) const;
  StepArgs bare_args() const;
  StepArgs step_args(const sdk::AttentionArgs& args) const;
  Status run_segments(const StepArgs& step, void* workspace, void* stream);
  Status run_stream(const StepArgs& step, void* workspace, void* stream);
  TiledArgs tiled_args(const StepArgs& step) const;
  Status run_tiled(const StepArgs& step, void* workspace, void* stream);

  sdk::Host& host_;
  Variant variant_;
  sdk::AttentionShape shape_{};
  sdk::StepLimits limits_{};
  std::int32_t group_ = 1;
  std::int64_t most_shared_ = 0;  // bytes a block may ask for
  bool segments_ = false;         // the segment kernels serve this shape
  bool falls_back_ = false;       // what was asked for does not
  std::uint64_t fallbacks_ = 0;
  std::vector<void*> blocks_;

  // Segments: claimed at bind.
  Unit* units_ = nullptr;
  std::int32_t* offsets_ = nullptr;
  std::uint32_t* arrivals_ = nullptr;
  std::int64_t most_units_ = 0;     // of a step
  std::int32_t most_regions_ = 0;   // of kManyPairs
  std::int64_t stream_units_ = 0;   // of a step of few rows: from so many on they are streamed (option; 0 = chosen)
  std::int32_t most_streamed_ = 0;  // units of one launch of the stream kernels
  std::int32_t resident_ = 0;       // blocks that run at the same time
  bool overlap_ = false;            // see UnitRange
  // Of the planned step.
  bool short_ = false;
  bool stream_ = false;
  std::vector<StreamRange> streamed_;
  std::int32_t pairs_ = kManyPairs;
  bool listed_ = false;     // the units are written down before the first layer
  bool scheduled_ = false;  // ... and have been
  std::int32_t singles_ = 0;
  std::vector<UnitRange> ranges_;
  std::int32_t max_rows_ = 0;
  std::int32_t max_length_ = 0;
};

Status ExactAttention::claim(std::int64_t bytes, void** out) {
  Status status = sdk::cuda_status(cudaMalloc(out, static_cast<std::size_t>(bytes)), "attention_exact: cudaMalloc");
  if (!status.ok()) return status;
  blocks_.push_back(*out);
  return sdk::cuda_status(cudaMemset(*out, 0, static_cast<std::size_t>(bytes)), "attention_exact: cudaMemset");
}

Status ExactAttention::bind(const sdk::AttentionShape& shape, const sdk::StepLimits& limits, const sdk::DeviceContext&,
                            std::size_t& workspace_bytes) noexcept {
  return sdk::guarded([&]() -> Status {
    if (Status status = check_shape(shape); !status.ok()) return status;
    shape_ = shape;
    limits_ = limits;
    group_ = shape.num_q_heads / shape.num_kv_heads;
    int device = 0, most = 0;
    Status status = sdk::cuda_status(cudaGetDevice(&device), "cudaGetDevice");
    if (!status.ok()) return status;
    status = sdk::cuda_status(cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device),
                              "cudaDeviceGetAttribute");
    if (!status.ok()) return status;
    most_shared_ = most;
    segments_ = variant_.family == Family::automatic && segments_serve(shape.head_dim, group_) &&
                segment_shared_bytes(shape.head_dim) <= most_shared_;
    falls_back_ = variant_.family == Family::automatic ? !segments_ : variant_.query_rows * group_ > kMostWarps;
    if (falls_back_)
      host_.log(sdk::LogLevel::warn,
                ("attention_exact: no tuned kernel for head_dim " + std::to_string(shape.head_dim) + " and " +
                 std::to_string(group_) + " query heads a KV head; the plain tiled kernel gives the same bits, slower")
                    .c_str());
    return segments_ ? bind_segments(workspace_bytes) : bind_tiled(workspace_bytes);
  });
}

Status ExactAttention::bind_segments(std::size_t& workspace_bytes) {
  Status status = prepare_segments(shape_.head_dim);
  if (!status.ok()) return status;
  int device = 0, processors = 0, major = 0;
  if (!(status = sdk::cuda_status(cudaGetDevice(&device), "cudaGetDevice")).ok()) return status;
  status = sdk::cuda_status(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device),
                            "cudaDeviceGetAttribute");
  if (!status.ok()) return status;
  status = sdk::cuda_status(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device),
                            "cudaDeviceGetAttribute");
  if (!status.ok()) return status;
  overlap_ = major >= 9;
  resident_ = 2 * processors;
  if (stream_units_ == 0) stream_units_ = 3 * processors * (shape_.head_dim <= 64 ? 2 : 1);  // docs/benchmarks.md
  // Of the smaller tiles there are the most. Every slice may have one that is not full.
  const std::int32_t tiles = limits_.max_slices + ceil_div(limits_.max_rows, kFewPairs / group_);
  const std::int32_t segments = segments_of(limits_.max_context);
  const std::int64_t units = std::int64_t{tiles} * segments * shape_.num_kv_heads;
  most_units_ = units;
  const std::int64_t region = std::int64_t{kManyPairs} * sdk::kAttentionSegment;
  most_regions_ = static_cast<std::int32_t>(
      std::min(units, std::max<std::int64_t>(segments, kRegionBytes / static_cast<std::int64_t>(bytes_of(region)))));
  const std::int32_t most_units = most_regions_ * (kManyPairs / kFewPairs);  // of one launch
  const std::int64_t streamed = std::int64_t{ceil_div(limits_.max_pages, kSegmentPages) + limits_.max_slices} *
                                shape_.num_kv_heads;  // every slice may have a segment that is not full
  most_streamed_ = static_cast<std::int32_t>(std::min(streamed, kRegionBytes / (4 * kUnitScores)));
  most_streamed_ = std::max(most_streamed_, segments);  // those of one head are launched together
  workspace_bytes = std::max(bytes_of(most_regions_ * region) + 2 * bytes_of(std::int64_t{most_units} * kManyPairs),
                             bytes_of(std::int64_t{most_streamed_} * kUnitScores));
  if (!(status = claim(units * static_cast<std::int64_t>(sizeof(Unit)), reinterpret_cast<void**>(&units_))).ok())
    return status;
  if (!(status = claim(std::int64_t{4} * limits_.max_slices, reinterpret_cast<void**>(&offsets_))).ok()) return status;
  return claim(std::int64_t{4} * std::max(most_units, most_streamed_), reinterpret_cast<void**>(&arrivals_));
}

Status ExactAttention::bind_tiled(std::size_t& workspace_bytes) {
  const std::int64_t own = std::int64_t{limits_.max_rows} * shape_.num_kv_heads * shape_.head_dim;
  workspace_bytes = variant_.hybrid ? 2 * bytes_of(own) : 0;
  return prepare_tiled(shape_.head_dim, most_shared_);
}

Status ExactAttention::plan(const sdk::PackedRows& rows) noexcept {
  return sdk::guarded([&]() -> Status {
    max_rows_ = max_length_ = 0;
    for (std::int32_t s = 0; s < rows.num_slices; ++s) {
      max_rows_ = std::max(max_rows_, rows.slices[s].num_rows);
      max_length_ = std::max(max_length_, rows.slices[s].first_position + rows.slices[s].num_rows);
    }
    short_ = segments_ && max_length_ <= kShort && rows.num_rows * shape_.num_q_heads <= kFewWarps * resident_;
    stream_ = segments_ && max_length_ > sdk::kAttentionSegment && max_rows_ * group_ <= kStreamPairs;
    if (stream_) plan_stream(rows);
    if (stream_) return {};
    return segments_ && !short_ ? plan_segments(rows) : Status{};
  });
}

/// Cuts the units into launches whose scores fit the workspace; those of a slice's head stay together. Few units are
/// not streamed: a block that stages its keys has all of them under way at once, and is done sooner.
void ExactAttention::plan_stream(const sdk::PackedRows& rows) {
  for (pairs_ = 1; pairs_ < max_rows_ * group_;) pairs_ *= 2;
  streamed_.assign(1, {0, 0});
  for (std::int32_t s = 0; s < rows.num_slices; ++s) {
    const std::int32_t segments = segments_of(rows.slices[s].first_position + rows.slices[s].num_rows);
    for (std::int32_t head = 0; head < shape_.num_kv_heads; ++head) {
      const StreamRange last = streamed_.back();
      if (last.blocks + segments > most_streamed_) streamed_.push_back({last.first + last.blocks, 0});
      streamed_.back().blocks += segments;
    }
  }
  stream_ = streamed_.size() > 1 || streamed_[0].blocks >= stream_units_;
  if (streamed_.size() == 1) streamed_[0].blocks = std::min(sdk::launch_bucket(streamed_[0].blocks), most_streamed_);
}

UnitCounts ExactAttention::count_units(const sdk::PackedRows& rows, std::int32_t pairs) const {
  UnitCounts counts;
  const std::int32_t tile_rows = pairs / group_;
  for (std::int32_t s = 0; s < rows.num_slices; ++s)
    for (std::int32_t row = 0; row < rows.slices[s].num_rows; row += tile_rows) {
      const std::int32_t segments = segments_of(tile_length(rows.slices[s], row, tile_rows));
      (segments == 1 ? counts.single : counts.multiple) += segments * shape_.num_kv_heads;
    }
  return counts;
}

/// Chooses the size of tiles, and cuts the units into launches whose scores fit the workspace. Where there is a list,
/// it will be in schedule_kernel's order.
Status ExactAttention::plan_segments(const sdk::PackedRows& rows) {
  pairs_ = kFewPairs;
  if (max_rows_ * group_ > kFewPairs) {
    const UnitCounts many = count_units(rows, kManyPairs);
    if (many.single + many.multiple >= resident_) pairs_ = kManyPairs;
  }
  const UnitCounts counts = count_units(rows, pairs_);
  const std::int32_t most = most_regions_ * (kManyPairs / pairs_), all = counts.single + counts.multiple;
  if (all > most_units_)
    return sdk::fail(Code::internal, "attention_exact: a step of " + std::to_string(all) +
                                         " units exceeds the limits given to bind, " + std::to_string(most_units_));
  ranges_.clear();
  scheduled_ = false;
  const bool few = max_rows_ * group_ <= kStreamPairs;  // decoding: its launches should last for many tokens
  listed_ = all > most || (all > resident_ && !few);
  singles_ = counts.single;
  if (!listed_) {
    const std::int32_t blocks = few ? std::min(sdk::launch_bucket(all), most) : all;
    ranges_.push_back({nullptr, nullptr, 0, blocks, counts.multiple > 0, overlap_});
    return {};
  }
  ranges_.push_back({units_, units_ + singles_, singles_, 0, false, overlap_});
  const std::int32_t tile_rows = pairs_ / group_;
  for (std::int32_t s = 0; s < rows.num_slices; ++s)
    for (std::int32_t row = 0; row < rows.slices[s].num_rows; row += tile_rows) {
      const std::int32_t segments = segments_of(tile_length(rows.slices[s], row, tile_rows));
      if (segments == 1) continue;
      for (std::int32_t head = 0; head < shape_.num_kv_heads; ++head) {
        if (ranges_.back().multiples + segments > most)
          ranges_.push_back({nullptr, ranges_.back().multiple_units + ranges_.back().multiples, 0, 0, true, overlap_});
        ranges_.back().multiples += segments;
        ranges_.back().values = true;
      }
    }
  return {};
}

/// Which kernels, and every number of their launches that is not the step's own. Lists of units are not recorded: their
/// launches change with every position.
std::uint64_t ExactAttention::topology() const noexcept {
  const auto pack = [](std::uint64_t kernels, std::int32_t a, std::int32_t b, std::int32_t c = 0) {
    return kernels | static_cast<std::uint64_t>(a) << 3 | static_cast<std::uint64_t>(b) << 23 |
           static_cast<std::uint64_t>(c) << 43;  // 20 bits each
  };
  if (short_) return pack(1, 0, 0);
  if (stream_) return streamed_.size() > 1 ? 0 : pack(2, pairs_, streamed_[0].blocks);
  if (segments_) return listed_ ? 0 : pack(ranges_[0].values ? 4 : 3, pairs_, ranges_[0].multiples);
  const TiledArgs args = tiled_args(bare_args());
  return pack(5, args.max_rows, args.capacity / sdk::kAttentionSegment, args.table);
}

/// What the size of a tile depends on.
StepArgs ExactAttention::bare_args() const {
  StepArgs step{};
  step.group = group_, step.head_dim = shape_.head_dim;
  return step;
}

StepArgs ExactAttention::step_args(const sdk::AttentionArgs& args) const {
  const std::int64_t layer = args.kv.offset(0, args.layer, 0, 0);
  return {.q = args.q.f32(),
          .q_stride = args.q.stride,
          .out = args.out.f32(),
          .out_stride = args.out.stride,
          .k = static_cast<const float*>(args.kv.k) + layer,
          .v = static_cast<const float*>(args.kv.v) + layer,
          .page_stride = args.kv.offset(1, 0, 0, 0),
          .slices = args.rows.slices,
          .positions = args.rows.positions,
          .row_slice = args.rows.row_slice,
          .pages = args.rows.pages,
          .num_rows = args.rows.num_rows,
          .num_slices = args.rows.num_slices,
          .q_heads = shape_.num_q_heads,
          .kv_heads = shape_.num_kv_heads,
          .group = group_,
          .head_dim = shape_.head_dim,
          .scale = shape_.scale,
          .emitted = args.scores,
          .emitted_stride = args.scores_stride};
}

Status ExactAttention::run(const sdk::AttentionArgs& args, const sdk::DeviceContext& device) noexcept {
  if (args.rows.num_rows == 0) return {};
  fallbacks_ += falls_back_ ? 1 : 0;
  const StepArgs step = step_args(args);
  if (short_) return launch_short(step, device.stream);
  if (stream_) return run_stream(step, args.workspace, device.stream);
  return segments_ ? run_segments(step, args.workspace, device.stream) : run_tiled(step, args.workspace, device.stream);
}

Status ExactAttention::run_segments(const StepArgs& step, void* workspace, void* stream) {
  SegmentArgs args{step, pairs_ / group_, static_cast<float*>(workspace), nullptr, nullptr, arrivals_};
  args.unit_largest = args.regions + std::int64_t{most_regions_} * kManyPairs * sdk::kAttentionSegment;
  args.unit_sums = args.unit_largest + std::int64_t{most_regions_} * (kManyPairs / kFewPairs) * kManyPairs;
  if (listed_ && !scheduled_) {
    if (Status status = launch_schedule(args, singles_, offsets_, units_, stream); !status.ok()) return status;
    scheduled_ = true;
  }
  for (const UnitRange& range : ranges_)
    if (Status status = launch_segments(args, range, pairs_, stream); !status.ok()) return status;
  return {};
}

Status ExactAttention::run_stream(const StepArgs& step, void* workspace, void* stream) {
  SegmentArgs args{step, kStreamPairs, static_cast<float*>(workspace), nullptr, nullptr, arrivals_};
  const std::int64_t units = most_streamed_;
  args.unit_largest = args.regions + units * pairs_ * sdk::kAttentionSegment;
  args.unit_sums = args.unit_largest + units * pairs_;
  for (const StreamRange& range : streamed_)
    if (Status status = launch_stream(args, range, pairs_, overlap_, stream); !status.ok()) return status;
  return {};
}

TiledArgs ExactAttention::tiled_args(const StepArgs& step) const {
  TiledArgs args{
      step, std::min(variant_.query_rows, kMostWarps / group_), variant_.tile_keys, max_rows_, 0, 0, nullptr, nullptr};
  if (variant_.family == Family::automatic) args.tile_rows = 1, args.tile_keys = 32;
  if (variant_.cache) args.table = ceil_div(max_length_, sdk::kPageSize);
  const bool online = variant_.family == Family::online;
  args.capacity = segments_of(max_length_) * sdk::kAttentionSegment;
  if (tiled_shared_bytes(args, online) > std::min(most_shared_, kMostSharedBytes))
    args.capacity = sdk::kAttentionSegment;
  if (tiled_shared_bytes(args, online) > most_shared_) args.table = 0;  // a table too long to copy is read where it is
  return args;
}

Status ExactAttention::run_tiled(const StepArgs& step, void* workspace, void* stream) {
  TiledArgs args = tiled_args(step);
  if (variant_.hybrid) {
    args.own_k = static_cast<float*>(workspace);
    args.own_v = args.own_k + std::int64_t{limits_.max_rows} * shape_.num_kv_heads * shape_.head_dim;
  }
  return launch_tiled(args, variant_.family == Family::online, stream);
}

std::int32_t ExactAttention::kernels(sdk::KernelFacts* out, std::int32_t capacity) const noexcept {
  sdk::KernelList list(out, capacity);
  if (short_) {
    list_short(shape_.head_dim, list);
  } else if (stream_) {
    for (std::size_t i = 0; i < streamed_.size(); ++i) list_stream(shape_.head_dim, pairs_, list);
  } else if (segments_) {
    if (listed_) list_schedule(list);
    for (const UnitRange& range : ranges_) list_segments(shape_.head_dim, pairs_, range.values, list);
  } else {
    list_tiled(tiled_args(bare_args()), variant_.family == Family::online, variant_.hybrid, list);
  }
  return list.count();
}

}  // namespace tessera_exact

TESSERA_REGISTER_PLUGIN(
    tessera::sdk::Attention, tessera_exact::ExactAttention, tessera::sdk::Device::cuda, "attention_exact", "0.1.0",
    tessera::sdk::Traits{tessera::sdk::kBatchInvariant | tessera::sdk::kChunkInvariant | tessera::sdk::kPortableBits |
                             tessera::sdk::kGraphCapturable | tessera::sdk::kEmitsScores,
                         1u << static_cast<unsigned>(tessera::sdk::DType::f32), 32, 256, TESSERA_GPU_ARCHITECTURES})
