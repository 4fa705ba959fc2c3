// The same plugin for a GPU. Its kernel is in my_attention.cu, because nvcc cannot compile Boost.DLL.
#include "my_attention_cuda.h"

#include "attend.h"
#include "tessera/sdk/register.h"

namespace my_attention {

class MyCudaAttention final : public Attention {
 public:
  MyCudaAttention(Host&, Status&) {}

  Status bind(const AttentionShape& shape, const StepLimits&, const DeviceContext&,
              std::size_t& workspace_bytes) noexcept override {
    shape_ = shape;
    workspace_bytes = 0;
    return check_shape(shape);
  }
  Status plan(const PackedRows&) noexcept override { return {}; }
  Status run(const AttentionArgs& args, const DeviceContext& device) noexcept override {
    return cuda_status(launch(args, shape_, stream_of(device)), "my_attention: launch");
  }

 private:
  AttentionShape shape_{};
};

constexpr Traits kTraits{kBatchInvariant | kChunkInvariant | kPortableBits | kGraphCapturable,
                         1u << static_cast<unsigned>(DType::f32), kLanes, kMaxHeadDim, TESSERA_GPU_ARCHITECTURES};

}  // namespace my_attention

TESSERA_REGISTER_PLUGIN(tessera::sdk::Attention, my_attention::MyCudaAttention, tessera::sdk::Device::cuda,
                        "my_attention", "0.1.0", my_attention::kTraits)
