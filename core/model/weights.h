// Where a decoder's weights come from: a checkpoint, or a seed.
#pragma once
#include <cstdint>
#include <vector>

#include "base/progress.h"
#include "base/random.h"
#include "base/status.h"
#include "model/checkpoint.h"
#include "model/spec.h"
#include "tessera/sdk/tensor.h"

namespace tessera {

/// Views stay valid until the next call.
class WeightSource {
 public:
  virtual ~WeightSource() = default;
  /// [rows = outputs][cols = inputs]
  virtual Result<sdk::HostMatrix> matrix(TensorName::Part part, std::int32_t layer, std::int32_t rows,
                                         std::int32_t cols) = 0;
  virtual Result<std::vector<float>> vector(TensorName::Part part, std::int32_t layer, std::int32_t size) = 0;
};

/// Takes each tensor exactly once; `all_taken` of the checkpoint is the caller's last word.
class CheckpointWeights final : public WeightSource {
 public:
  CheckpointWeights(const DecoderSpec& spec, Checkpoint& checkpoint, Progress& progress)
      : spec_(spec), checkpoint_(checkpoint), progress_(progress) {}
  Result<sdk::HostMatrix> matrix(TensorName::Part part, std::int32_t layer, std::int32_t rows,
                                 std::int32_t cols) override;
  Result<std::vector<float>> vector(TensorName::Part part, std::int32_t layer, std::int32_t size) override;

 private:
  const DecoderSpec& spec_;
  Checkpoint& checkpoint_;
  Progress& progress_;
};

/// Uniform weights of variance 1 / cols, for benchmarks of a geometry nobody trained. Norms are 1.
class RandomWeights final : public WeightSource {
 public:
  RandomWeights(std::uint64_t seed, sdk::DType dtype) : random_(seed), dtype_(dtype) {}
  Result<sdk::HostMatrix> matrix(TensorName::Part part, std::int32_t layer, std::int32_t rows,
                                 std::int32_t cols) override;
  Result<std::vector<float>> vector(TensorName::Part part, std::int32_t layer, std::int32_t size) override;

 private:
  Random random_;
  sdk::DType dtype_;
  std::vector<std::vector<float>> kept_;  // parts of one fused weight must outlive each other
};

}  // namespace tessera
