// The looped model that benchmarks run: the geometry of Ouro-1.4B, or less of it, with weights that nobody trained.
#pragma once
#include <vector>

#include "bench/noise.h"
#include "model/spec.h"
#include "model/weights.h"

namespace tessera {

/// Ouro-1.4B: 24 layers, 2048 wide, 16 heads of 128, 4 loops. Less of each is for machines without a GPU.
struct LoopGeometry {
  std::int32_t layers = 24;
  std::int32_t heads = 16;  // of 128; the model is as wide as all of them
  std::int32_t vocab = 49152;
};

DecoderSpec loop_bench_spec(const LoopGeometry& geometry, std::int32_t max_context);

/// One block of noise over and over, as bf16: a model of 1.4 billion parameters in seconds.
class RepeatedWeights final : public WeightSource {
 public:
  Result<sdk::HostMatrix> matrix(TensorName::Part part, std::int32_t layer, std::int32_t rows,
                                 std::int32_t cols) override;
  Result<std::vector<float>> vector(TensorName::Part part, std::int32_t layer, std::int32_t size) override;

 private:
  std::vector<float> block_ = noise(1);
  std::vector<std::vector<std::uint16_t>> kept_;  // parts of one fused weight must outlive each other
};

}  // namespace tessera
