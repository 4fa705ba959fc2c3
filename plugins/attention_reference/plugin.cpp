// The oracle: every fast kernel is held to its bits.
#include <algorithm>
#include <atomic>

#include "reference.h"
#include "reference_attention.h"
#include "tessera/sdk/register.h"

namespace tessera_reference {

namespace sdk = tessera::sdk;
using sdk::Status;

class CpuReferenceAttention final : public ReferenceAttention {
 public:
  CpuReferenceAttention(sdk::Host& host, Status& status) : ReferenceAttention(host, status) {}
  virtual ~CpuReferenceAttention() = default;

  Status bind(const sdk::AttentionShape& shape, const sdk::StepLimits& limits, const sdk::DeviceContext& device,
              std::size_t& workspace_bytes) noexcept override {
    return sdk::guarded([&]() -> Status {
      if (Status status = accept(shape); !status.ok()) return status;
      context_ = limits.max_context;
      attend_ = device.isa == sdk::CpuIsa::avx512 ? avx512::kAttend
                : device.isa == sdk::CpuIsa::avx2 ? avx2::kAttend
                                                  : scalar::kAttend;
      workspace_bytes =
          sizeof(float) * static_cast<std::size_t>(context_) * static_cast<std::size_t>(device.executor->width());
      return {};
    });
  }

  Status run(const sdk::AttentionArgs& args, const sdk::DeviceContext& device) noexcept override {
    const std::int64_t items = static_cast<std::int64_t>(args.rows.num_rows) * shape_.num_q_heads;
    const std::int64_t width = device.executor->width();
    std::atomic<std::int64_t> next{0};
    // One task a worker, each with its own scores; they share the (row, head) pairs.
    sdk::parallel_for(*device.executor, std::min(width, items), [&](std::int64_t worker) {
      float* scores = static_cast<float*>(args.workspace) + worker * context_;
      for (std::int64_t i = next++; i < items; i = next++)
        attend_(args, shape_, static_cast<std::int32_t>(i / shape_.num_q_heads),
                static_cast<std::int32_t>(i % shape_.num_q_heads), scores);
    });
    return {};
  }

 private:
  std::int64_t context_ = 0;
  AttendFunction attend_ = nullptr;
};

}  // namespace tessera_reference

TESSERA_REGISTER_PLUGIN(tessera::sdk::Attention, tessera_reference::CpuReferenceAttention, tessera::sdk::Device::cpu,
                        "attention_reference", "0.1.0",
                        tessera::sdk::Traits{tessera::sdk::kBatchInvariant | tessera::sdk::kChunkInvariant |
                                                 tessera::sdk::kPortableBits | tessera::sdk::kEmitsScores,
                                             1u << static_cast<unsigned>(tessera::sdk::DType::f32), 32, 1024, ""})
