#include "bench/loop_model.h"

#include <bit>
#include <cmath>

namespace tessera {

DecoderSpec loop_bench_spec(const LoopGeometry& geometry, std::int32_t max_context) {
  DecoderSpec spec;
  spec.family = "ouro";
  spec.vocab = geometry.vocab, spec.layers = geometry.layers;
  spec.q_heads = spec.kv_heads = geometry.heads, spec.head_dim = 128;
  spec.hidden = geometry.heads * spec.head_dim;
  spec.intermediate = spec.hidden / 4 * 11;
  spec.max_context = max_context;
  spec.rotary = {1e6, 128};
  spec.norms = NormPlacement::sandwich;
  spec.loops = 4;
  return spec;
}

Result<sdk::HostMatrix> RepeatedWeights::matrix(TensorName::Part, std::int32_t, std::int32_t rows, std::int32_t cols) {
  constexpr std::size_t kFusedParts = 3;
  if (kept_.size() == kFusedParts) kept_.erase(kept_.begin());
  const float scale = std::sqrt(3.0f / static_cast<float>(cols));
  std::vector<std::uint16_t>& values =
      kept_.emplace_back(static_cast<std::size_t>(rows) * static_cast<std::size_t>(cols));
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(block_[i % kNoiseBlock] * scale) >> 16);
  return sdk::HostMatrix{values.data(), sdk::DType::bf16, rows, cols};
}

Result<std::vector<float>> RepeatedWeights::vector(TensorName::Part, std::int32_t, std::int32_t size) {
  return std::vector<float>(static_cast<std::size_t>(size), 1.0f);
}

}  // namespace tessera
