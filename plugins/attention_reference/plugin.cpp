// The oracle: every fast kernel is held to its bits.
#include <algorithm>
#include <atomic>
#include <string>

#include "reference.h"
#include "tessera/sdk/numerics.h"
#include "tessera/sdk/register.h"

namespace tessera_reference {

namespace sdk = tessera::sdk;
using sdk::Code;
using sdk::Status;

class ReferenceAttention final : public sdk::Attention {
 public:
  ReferenceAttention(sdk::Host& host, Status& status) {
    static const char* const kVariants[] = {"auto", "reference"};
    std::size_t variant = 0;
    status = host.option_choice("variant", "auto", kVariants, 2, &variant);
  }
  virtual ~ReferenceAttention() = default;

  Status bind(const sdk::AttentionShape& shape, const sdk::StepLimits& limits, const sdk::DeviceContext& device,
              std::size_t& workspace_bytes) noexcept override {
    return sdk::guarded([&]() -> Status {
      if (shape.head_dim <= 0 || shape.head_dim % sdk::kLanes != 0 || shape.head_dim > 1024)
        return sdk::fail(Code::unsupported, "attention_reference: head_dim is " + std::to_string(shape.head_dim) +
                                                "; wanted a multiple of 32 up to 1024");
      if (shape.num_kv_heads <= 0 || shape.num_q_heads % shape.num_kv_heads != 0)
        return sdk::fail(Code::unsupported, "attention_reference: " + std::to_string(shape.num_q_heads) +
                                                " query heads cannot share " + std::to_string(shape.num_kv_heads) +
                                                " key/value heads evenly");
      if (shape.kv_dtype != sdk::DType::f32)
        return sdk::fail(Code::unsupported, std::string("attention_reference: KV of type ") +
                                                sdk::dtype_name(shape.kv_dtype) + "; wanted f32");
      shape_ = shape;
      context_ = limits.max_context;
      attend_ = device.isa == sdk::CpuIsa::avx512 ? avx512::kAttend
                : device.isa == sdk::CpuIsa::avx2 ? avx2::kAttend
                                                  : scalar::kAttend;
      workspace_bytes =
          sizeof(float) * static_cast<std::size_t>(context_) * static_cast<std::size_t>(device.executor->width());
      return {};
    });
  }

  Status plan(const sdk::PackedRows&) noexcept override { return {}; }

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
  sdk::AttentionShape shape_{};
  std::int64_t context_ = 0;
  AttendFunction attend_ = nullptr;
};

}  // namespace tessera_reference

TESSERA_REGISTER_PLUGIN(tessera::sdk::Attention, tessera_reference::ReferenceAttention, tessera::sdk::Device::cpu,
                        "attention_reference", "0.1.0",
                        tessera::sdk::Traits{tessera::sdk::kBatchInvariant | tessera::sdk::kChunkInvariant |
                                                 tessera::sdk::kPortableBits | tessera::sdk::kEmitsScores,
                                             1u << static_cast<unsigned>(tessera::sdk::DType::f32), 32, 1024, ""})
