// attention_exact on the CPU.
#include <algorithm>
#include <atomic>
#include <vector>

#include "shape.h"
#include "tessera/sdk/numerics.h"
#include "tessera/sdk/register.h"
#include "tile.h"
#include "variants.h"

namespace tessera_exact {

namespace sdk = tessera::sdk;
using sdk::Status;

namespace {

constexpr std::int64_t kCacheLine = 16;  // floats

std::int64_t round_up(std::int64_t value, std::int64_t to) { return (value + to - 1) / to * to; }

}  // namespace

class ExactAttention final : public sdk::Attention {
 public:
  ExactAttention(sdk::Host& host, Status& status) {
    const char* name = nullptr;
    status = host.option_text("variant", "auto", &name);
    if (status.ok() && !parse_variant(name, &variant_)) status = host.refuse("variant", kVariantGrammar);
  }
  virtual ~ExactAttention() = default;

  const char* variants() const noexcept override { return variant_list(); }
  bool exact() const noexcept override { return variant_.family != Family::online; }

  Status bind(const sdk::AttentionShape& shape, const sdk::StepLimits& limits, const sdk::DeviceContext& device,
              std::size_t& workspace_bytes) noexcept override {
    return sdk::guarded([&]() -> Status {
      if (Status status = check_shape(shape); !status.ok()) return status;
      shape_ = shape;
      const std::int32_t group = shape.num_q_heads / shape.num_kv_heads;
      const bool automatic = variant_.family == Family::automatic;
      const std::int32_t wanted = automatic ? kMostPairs / group : variant_.query_rows;
      tiling_ = {std::clamp(wanted, 1, kMostPairs / group), automatic ? 64 : variant_.tile_keys, variant_.cache,
                 nullptr, nullptr};
      const TileTable& table = device.isa == sdk::CpuIsa::avx512 ? avx512::kTiles
                               : device.isa == sdk::CpuIsa::avx2 ? avx2::kTiles
                                                                 : scalar::kTiles;
      attend_ = exact() ? table.exact : table.online;
      pairs_ = tiling_.rows * group;
      context_ = round_up(limits.max_context, sdk::kAttentionSegment);
      own_floats_ = variant_.hybrid ? std::int64_t{limits.max_rows} * shape.num_kv_heads * shape.head_dim : 0;
      tasks_.reserve(static_cast<std::size_t>(limits.max_rows) * static_cast<std::size_t>(shape.num_kv_heads));
      workspace_bytes =
          sizeof(float) * static_cast<std::size_t>(2 * own_floats_ + scratch_floats() * device.executor->width());
      return {};
    });
  }

  Status plan(const sdk::PackedRows& rows) noexcept override {
    return sdk::guarded([&]() -> Status {
      tasks_.clear();
      for (std::int32_t slice = 0; slice < rows.num_slices; ++slice)
        for (std::int32_t head = 0; head < shape_.num_kv_heads; ++head)
          for (std::int32_t row = 0; row < rows.slices[slice].num_rows; row += tiling_.rows)
            tasks_.push_back({slice, row, head});
      // The longest first, so that no thread is left with one at the end.
      const auto length = [&](const TileTask& task) { return rows.slices[task.slice].first_position + task.row; };
      std::sort(tasks_.begin(), tasks_.end(),
                [&](const TileTask& a, const TileTask& b) { return length(a) > length(b); });
      return {};
    });
  }

  Status run(const sdk::AttentionArgs& args, const sdk::DeviceContext& device) noexcept override {
    float* workspace = static_cast<float*>(args.workspace);
    Tiling tiling = tiling_;
    if (variant_.hybrid) {
      copy_own_rows(args, *device.executor, workspace);
      tiling.own_k = workspace;
      tiling.own_v = workspace + own_floats_;
    }
    const auto tasks = static_cast<std::int64_t>(tasks_.size());
    std::atomic<std::int64_t> next{0};
    // One task a worker, each with its own scratch; they share the tiles.
    sdk::parallel_for(*device.executor, std::min<std::int64_t>(device.executor->width(), tasks),
                      [&](std::int64_t worker) {
                        const TileScratch scratch = scratch_of(workspace + 2 * own_floats_ + worker * scratch_floats());
                        for (std::int64_t i = next++; i < tasks; i = next++)
                          attend_(args, shape_, tiling, tasks_[static_cast<std::size_t>(i)], scratch);
                      });
    return {};
  }

 private:
  std::int64_t scratch_floats() const {
    return round_up(std::int64_t{shape_.head_dim} * tiling_.keys + pairs_ * (context_ + 3 * shape_.head_dim) +
                        context_ / sdk::kPageSize,
                    kCacheLine);
  }

  TileScratch scratch_of(float* memory) const {
    TileScratch scratch{};
    scratch.stride = context_;
    scratch.panel = memory;
    scratch.scores = scratch.panel + std::int64_t{shape_.head_dim} * tiling_.keys;
    scratch.values = scratch.scores + pairs_ * context_;
    scratch.running = scratch.values + pairs_ * shape_.head_dim;
    scratch.queries = scratch.running + pairs_ * shape_.head_dim;
    scratch.table = reinterpret_cast<std::int32_t*>(scratch.queries + pairs_ * shape_.head_dim);
    return scratch;
  }

  /// hybrid: the step's own K and V side by side.
  void copy_own_rows(const sdk::AttentionArgs& args, sdk::Executor& executor, float* own) const {
    const std::int64_t width = std::int64_t{shape_.num_kv_heads} * shape_.head_dim;
    sdk::parallel_for(executor, args.rows.num_rows, [&](std::int64_t row) {
      const std::int32_t position = args.rows.positions[row];
      const sdk::Slice& slice = args.rows.slices[args.rows.row_slice[row]];
      const std::int64_t source = args.kv.offset(args.rows.pages[slice.first_page + position / sdk::kPageSize],
                                                 args.layer, position % sdk::kPageSize, 0);
      for (std::int64_t i = 0; i < width; ++i) {
        own[row * width + i] = static_cast<const float*>(args.kv.k)[source + i];
        own[own_floats_ + row * width + i] = static_cast<const float*>(args.kv.v)[source + i];
      }
    });
  }

  Variant variant_;
  sdk::AttentionShape shape_{};
  Tiling tiling_{};
  TileFunction attend_ = nullptr;
  std::int64_t pairs_ = 0;
  std::int64_t context_ = 0;
  std::int64_t own_floats_ = 0;
  std::vector<TileTask> tasks_;  // of the planned step
};

}  // namespace tessera_exact

TESSERA_REGISTER_PLUGIN(tessera::sdk::Attention, tessera_exact::ExactAttention, tessera::sdk::Device::cpu,
                        "attention_exact", "0.1.0",
                        tessera::sdk::Traits{tessera::sdk::kBatchInvariant | tessera::sdk::kChunkInvariant |
                                                 tessera::sdk::kPortableBits | tessera::sdk::kEmitsScores,
                                             1u << static_cast<unsigned>(tessera::sdk::DType::f32), 32, 256, ""})
