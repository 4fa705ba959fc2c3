// The oracle on a GPU: the same bits as the CPU's.
#include "reference_attention.h"
#include "reference_cuda.h"
#include "tessera/sdk/cuda.h"
#include "tessera/sdk/register.h"

namespace tessera_reference {

namespace sdk = tessera::sdk;
using sdk::Status;

class CudaReferenceAttention final : public ReferenceAttention {
 public:
  CudaReferenceAttention(sdk::Host& host, Status& status) : ReferenceAttention(host, status) {}
  virtual ~CudaReferenceAttention() = default;

  Status bind(const sdk::AttentionShape& shape, const sdk::StepLimits&, const sdk::DeviceContext&,
              std::size_t& workspace_bytes) noexcept override {
    workspace_bytes = 0;
    return sdk::guarded([&] { return accept(shape); });
  }

  std::int32_t kernels(sdk::KernelFacts* out, std::int32_t capacity) const noexcept override {
    sdk::KernelList list(out, capacity);
    list_kernels(list);
    return list.count();
  }

  std::uint64_t topology() const noexcept override { return 1; }  // one kernel, a block a row and head

  Status run(const sdk::AttentionArgs& args, const sdk::DeviceContext& device) noexcept override {
    return sdk::cuda_status(attend_cuda(args, shape_, sdk::stream_of(device)), "attention_reference: run");
  }
};

}  // namespace tessera_reference

TESSERA_REGISTER_PLUGIN(tessera::sdk::Attention, tessera_reference::CudaReferenceAttention, tessera::sdk::Device::cuda,
                        "attention_reference", "0.1.0",
                        tessera::sdk::Traits{tessera::sdk::kBatchInvariant | tessera::sdk::kChunkInvariant |
                                                 tessera::sdk::kPortableBits | tessera::sdk::kGraphCapturable |
                                                 tessera::sdk::kEmitsScores,
                                             1u << static_cast<unsigned>(tessera::sdk::DType::f32), 32, 1024,
                                             TESSERA_GPU_ARCHITECTURES})
