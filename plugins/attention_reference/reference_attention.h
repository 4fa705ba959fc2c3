// What the CPU and the CUDA build of reference attention share: options and the shapes they accept.
#pragma once
#include <cstddef>
#include <string>

#include "tessera/sdk/attention.h"
#include "tessera/sdk/host.h"
#include "tessera/sdk/numerics.h"

namespace tessera_reference {

inline constexpr std::int32_t kMaxHeadDim = 1024;

class ReferenceAttention : public tessera::sdk::Attention {
 public:
  tessera::sdk::Status plan(const tessera::sdk::PackedRows&) noexcept override { return {}; }

 protected:
  ReferenceAttention(tessera::sdk::Host& host, tessera::sdk::Status& status) {
    static const char* const kVariants[] = {"auto", "reference"};
    std::size_t variant = 0;
    status = host.option_choice("variant", "auto", kVariants, 2, &variant);
  }
  ~ReferenceAttention() = default;

  /// Keeps the shape, or says why it cannot be served.
  tessera::sdk::Status accept(const tessera::sdk::AttentionShape& shape) {
    using tessera::sdk::Code;
    using tessera::sdk::fail;
    if (shape.head_dim <= 0 || shape.head_dim % tessera::sdk::kLanes != 0 || shape.head_dim > kMaxHeadDim)
      return fail(Code::unsupported, "attention_reference: head_dim is " + std::to_string(shape.head_dim) +
                                         "; wanted a multiple of 32 up to 1024");
    if (shape.num_kv_heads <= 0 || shape.num_q_heads % shape.num_kv_heads != 0)
      return fail(Code::unsupported, "attention_reference: " + std::to_string(shape.num_q_heads) +
                                         " query heads cannot share " + std::to_string(shape.num_kv_heads) +
                                         " key/value heads evenly");
    if (shape.kv_dtype != tessera::sdk::DType::f32)
      return fail(Code::unsupported, std::string("attention_reference: KV of type ") +
                                         tessera::sdk::dtype_name(shape.kv_dtype) + "; wanted f32");
    shape_ = shape;
    return {};
  }

  tessera::sdk::AttentionShape shape_{};
};

}  // namespace tessera_reference
