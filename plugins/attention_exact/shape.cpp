#include "shape.h"

#include <string>

namespace tessera_exact {

namespace sdk = tessera::sdk;

sdk::Status check_shape(const sdk::AttentionShape& shape) {
  const auto refuse = [](const std::string& text) {
    return sdk::fail(sdk::Code::unsupported,
                     "attention_exact: " + text + "; attention.name: attention_reference may serve it");
  };
  if (shape.head_dim <= 0 || shape.head_dim % 32 != 0 || shape.head_dim > 256)
    return refuse("head_dim is " + std::to_string(shape.head_dim) + "; wanted a multiple of 32 up to 256");
  if (shape.num_kv_heads <= 0 || shape.num_q_heads % shape.num_kv_heads != 0)
    return refuse(std::to_string(shape.num_q_heads) + " query heads cannot share " +
                  std::to_string(shape.num_kv_heads) + " key/value heads evenly");
  if (shape.num_q_heads / shape.num_kv_heads > 32)
    return refuse(std::to_string(shape.num_q_heads / shape.num_kv_heads) + " query heads a KV head; wanted 32 at most");
  if (shape.kv_dtype != sdk::DType::f32)
    return refuse(std::string("KV of type ") + sdk::dtype_name(shape.kv_dtype) + "; wanted f32");
  return {};
}

}  // namespace tessera_exact
