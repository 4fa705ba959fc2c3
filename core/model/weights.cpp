#include "model/weights.h"

#include <array>
#include <bit>
#include <cmath>

namespace tessera {

Result<sdk::HostMatrix> CheckpointWeights::matrix(TensorName::Part part, std::int32_t layer, std::int32_t rows,
                                                  std::int32_t cols) {
  const std::array<std::int64_t, 2> shape{rows, cols};
  auto tensor = checkpoint_.take(tensor_name(spec_, part, layer), shape);
  if (!tensor.ok()) return tensor.status();
  progress_.advance(static_cast<std::int64_t>(tensor->bytes));
  return sdk::HostMatrix{tensor->data, tensor->dtype, rows, cols};
}

Result<std::vector<float>> CheckpointWeights::vector(TensorName::Part part, std::int32_t layer, std::int32_t size) {
  const std::array<std::int64_t, 1> shape{size};
  auto tensor = checkpoint_.take(tensor_name(spec_, part, layer), shape);
  if (!tensor.ok()) return tensor.status();
  progress_.advance(static_cast<std::int64_t>(tensor->bytes));
  return to_f32(*tensor);
}

Result<sdk::HostMatrix> RandomWeights::matrix(TensorName::Part, std::int32_t, std::int32_t rows, std::int32_t cols) {
  constexpr std::size_t kFusedParts = 3;
  if (kept_.size() == kFusedParts) kept_.erase(kept_.begin());
  const float bound = std::sqrt(3.0f / static_cast<float>(cols));
  const std::size_t count = static_cast<std::size_t>(rows) * static_cast<std::size_t>(cols);
  std::vector<float>& values = kept_.emplace_back(count);
  for (float& value : values) value = random_.real(-bound, bound);
  if (dtype_ == sdk::DType::bf16) {
    auto* narrow = reinterpret_cast<std::uint16_t*>(values.data());
    for (std::size_t i = 0; i < count; ++i)
      narrow[i] = static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(values[i]) >> 16);
  }
  return sdk::HostMatrix{values.data(), dtype_, rows, cols};
}

Result<std::vector<float>> RandomWeights::vector(TensorName::Part, std::int32_t, std::int32_t size) {
  return std::vector<float>(static_cast<std::size_t>(size), 1.0f);
}

}  // namespace tessera
