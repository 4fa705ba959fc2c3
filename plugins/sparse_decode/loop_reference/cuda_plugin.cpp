// loop_reference on a GPU.
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
  CudaLoopReference(sdk::Host& host, Status& status) : LoopReferenceBase(host, status) {}
  virtual ~CudaLoopReference() {
    for (void* block : blocks_) cudaFree(block);
  }

  Status bind(const sdk::AttentionShape& shape, const sdk::StepLimits& limits, std::int32_t num_slots,
              const sdk::DeviceContext&, std::size_t& workspace_bytes) noexcept override {
    return sdk::guarded([&]() -> Status {
      if (Status status = accept(shape, limits); !status.ok()) return status;
      const std::size_t count = heads(num_slots), vectors = count * static_cast<std::size_t>(shape.head_dim);
      const auto capacity = static_cast<std::size_t>(capacity_);
      store_.capacity = capacity_;
      if (Status status = claim(count, &store_.counts); !status.ok()) return status;
      if (Status status = claim(count, &store_.masses); !status.ok()) return status;
      if (Status status = claim(vectors, &store_.outputs); !status.ok()) return status;
      if (Status status = claim(vectors, &store_.contributions); !status.ok()) return status;
      if (Status status = claim(count * capacity, &store_.selected); !status.ok()) return status;
      workspace_bytes = sizeof(float) * capacity * static_cast<std::size_t>(limits.max_decode_rows) *
                        static_cast<std::size_t>(shape.num_q_heads);
      return {};
    });
  }
  Status capture(const sdk::SparseArgs& args, const sdk::DeviceContext& device) noexcept override {
    return sdk::cuda_status(capture_cuda({args, shape_, store_, retention_}, sdk::stream_of(device)),
                            "loop_reference: capture");
  }
  Status consume(const sdk::SparseArgs& args, const sdk::DeviceContext& device) noexcept override {
    return sdk::cuda_status(consume_cuda({args, shape_, store_, retention_}, sdk::stream_of(device)),
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

  Store store_{};
  std::vector<void*> blocks_;
};

}  // namespace tessera_loop

TESSERA_REGISTER_PLUGIN(tessera::sdk::SparseDecode, tessera_loop::CudaLoopReference, tessera::sdk::Device::cuda,
                        "loop_reference", "0.1.0",
                        tessera::sdk::Traits{
                            tessera::sdk::kBatchInvariant | tessera::sdk::kChunkInvariant | tessera::sdk::kPortableBits,
                            1u << static_cast<unsigned>(tessera::sdk::DType::f32), 32, 1024, TESSERA_GPU_ARCHITECTURES})
