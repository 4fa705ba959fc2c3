// loop_reference on a GPU.
#include <algorithm>
#include <vector>

#include "cuda.h"
#include "retention.h"
#include "tessera/sdk/cuda.h"
#include "tessera/sdk/register.h"

namespace tessera_loop {

namespace sdk = tessera::sdk;
using sdk::Status;

class CudaLoopReference final : public LoopReferenceBase {
 public:
  CudaLoopReference(sdk::Host& host, Status& status) : LoopReferenceBase(host, status) {
    if (status.ok()) status = host.option_int("few_units", 640, 0, 1 << 30, &few_units_);
  }
  virtual ~CudaLoopReference() {
    for (void* block : blocks_) cudaFree(block);
  }

  Status bind(const sdk::AttentionShape& shape, const sdk::StepLimits& limits, const sdk::ReferenceRoom& room,
              const sdk::DeviceContext&, std::size_t& workspace_bytes) noexcept override {
    return sdk::guarded([&]() -> Status {
      if (Status status = accept(shape, limits, room); !status.ok()) return status;
      const std::size_t vectors = heads_ * static_cast<std::size_t>(shape.head_dim);
      max_context_ = limits.max_context;
      store_.capacity = capacity_;
      if (Status status = claim(heads_, &store_.counts); !status.ok()) return status;
      if (Status status = claim(heads_, &store_.masses); !status.ok()) return status;
      if (Status status = claim(vectors, &store_.outputs); !status.ok()) return status;
      if (Status status = claim(vectors, &store_.contributions); !status.ok()) return status;
      if (Status status = claim(list_entries_, &store_.lists); !status.ok()) return status;
      return place_scratch(limits, workspace_bytes);
    });
  }
  Status plan(sdk::RowMode mode, const sdk::PackedRows& rows) noexcept override {
    std::int32_t& longest = mode == sdk::RowMode::capture ? longest_captured_ : longest_consumed_;
    longest = 0;
    for (std::int32_t row = 0; row < rows.num_rows; ++row) longest = std::max(longest, rows.positions[row] + 1);
    longest = std::min(sdk::launch_bucket(longest), max_context_);
    return {};
  }
  std::uint64_t topology(sdk::RowMode mode) const noexcept override {
    return static_cast<std::uint64_t>(mode == sdk::RowMode::capture ? longest_captured_ : longest_consumed_);
  }
  Status capture(const sdk::SparseArgs& args, const sdk::DeviceContext& device) noexcept override {
    if (args.rows.num_rows == 0) return {};
    const Call call = call_of(args, longest_captured_);
    const Status selected =
        sdk::cuda_status(launch_select(call, shared_bytes_, sdk::stream_of(device)), "loop_reference: selecting");
    return selected.ok() ? sdk::cuda_status(launch_capture(call, sdk::stream_of(device)), "loop_reference: capture")
                         : selected;
  }
  Status consume(const sdk::SparseArgs& args, const sdk::DeviceContext& device) noexcept override {
    if (args.rows.num_rows == 0) return {};
    return sdk::cuda_status(launch_consume(call_of(args, longest_consumed_), sdk::stream_of(device)),
                            "loop_reference: consume");
  }

 private:
  template <class T>
  Status claim(std::size_t count, T** out) {
    const Status status = sdk::cuda_status(cudaMalloc(reinterpret_cast<void**>(out), count * sizeof(T)),
                                           "loop_reference: claiming references");
    if (!status.ok()) return status;
    blocks_.push_back(*out);
    return sdk::cuda_status(cudaMemset(*out, 0, count * sizeof(T)), "cudaMemset");
  }

  /// Offsets into the workspace, for the most rows that one call can have.
  Status place_scratch(const sdk::StepLimits& limits, std::size_t& workspace_bytes) {
    constexpr auto segment = static_cast<std::int64_t>(sdk::kAttentionSegment);
    const std::int64_t pairs = std::int64_t{limits.max_decode_rows} * shape_.num_q_heads;
    scratch_.segments = static_cast<std::int32_t>((capacity_ + segment - 1) / segment);
    scratch_.whole_segments = static_cast<std::int32_t>((limits.max_context + segment - 1) / segment);
    const std::int64_t sizes[kParts] = {pairs, pairs * capacity_, pairs * scratch_.whole_segments,
                                        pairs * scratch_.segments, pairs * scratch_.segments * shape_.head_dim};
    std::int64_t total = 0;
    for (int part = 0; part < kParts; ++part) starts_[part] = total, total += sizes[part];
    workspace_bytes = static_cast<std::size_t>(total) * sizeof(float);
    int device = 0, most = 0;
    if (Status status = sdk::cuda_status(cudaGetDevice(&device), "cudaGetDevice"); !status.ok()) return status;
    if (Status status = sdk::cuda_status(cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device),
                                         "cudaDeviceGetAttribute");
        !status.ok())
      return status;
    shared_bytes_ = most - kStaticShared;
    return sdk::cuda_status(prepare_select(shared_bytes_), "loop_reference: shared memory");
  }

  Call call_of(const sdk::SparseArgs& args, std::int32_t longest) const {
    auto* floats = static_cast<float*>(args.workspace);
    Scratch scratch = scratch_;
    scratch.largest = static_cast<std::uint32_t*>(args.workspace) + starts_[0];
    scratch.scores = floats + starts_[1];
    scratch.whole_sums = floats + starts_[2];
    scratch.sums = floats + starts_[3];
    scratch.vectors = floats + starts_[4];
    return {args, shape_, store_, scratch, retention_, longest, few_units_};
  }

  static constexpr int kParts = 5;
  static constexpr std::int64_t kStaticShared = 4096;  // what the selection has besides its scores, generously
  Store store_{};
  Scratch scratch_{};
  std::int64_t starts_[kParts] = {};                          // in floats
  std::int64_t shared_bytes_ = 0;                             // for the scores of one selection
  std::int32_t longest_captured_ = 0, longest_consumed_ = 0;  // as launches are sized
  std::int64_t few_units_ = 0;                                // docs/benchmarks.md
  std::int32_t max_context_ = 0;
  std::vector<void*> blocks_;
};

}  // namespace tessera_loop

TESSERA_REGISTER_PLUGIN(tessera::sdk::SparseDecode, tessera_loop::CudaLoopReference, tessera::sdk::Device::cuda,
                        "loop_reference", "0.1.0",
                        tessera::sdk::Traits{tessera::sdk::kBatchInvariant | tessera::sdk::kChunkInvariant |
                                                 tessera::sdk::kPortableBits | tessera::sdk::kGraphCapturable,
                                             1u << static_cast<unsigned>(tessera::sdk::DType::f32), 32, 1024,
                                             TESSERA_GPU_ARCHITECTURES})
