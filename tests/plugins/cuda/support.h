// The CPU and the CUDA plugins side by side: the same inputs, and the bits both make of them.
#pragma once
#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/random.h"
#include "registry/registry.h"
#include "tessera/sdk/attention.h"
#include "tessera/sdk/backend.h"
#include "tessera/sdk/sparse_decode.h"

namespace cuda_test {

namespace sdk = tessera::sdk;

inline constexpr sdk::StepLimits kLimits{600, 16, 600, 4096, 4096, 16, 1024};

/// One backend with bound limits; everything it allocates goes with it.
class Side {
 public:
  explicit Side(const char* name);  // "cpu" or "cuda"

  sdk::Backend* operator->() const { return backend_.get(); }
  tessera::PluginPtr<sdk::Attention> attention(const char* name, const sdk::AttentionShape& shape, void** workspace,
                                               const std::vector<tessera::PluginOption>& options = {}) const;
  /// Created, not bound.
  tessera::PluginPtr<sdk::Attention> unbound(const char* name,
                                             const std::vector<tessera::PluginOption>& options = {}) const;
  tessera::PluginPtr<sdk::SparseDecode> sparse(const char* name,
                                               const std::vector<tessera::PluginOption>& options) const;

  float* put(const std::vector<float>& values) const;
  std::vector<float> get(const void* device, std::size_t count) const;
  /// Device memory of `count` floats, filled with a NaN that must not survive.
  float* poisoned(std::size_t count) const;

 private:
  tessera::PluginPtr<sdk::Backend> backend_;
};

/// False without a GPU, after saying why (once).
bool gpu_is_there();

/// Uniform in [-1, 1), times `scale`.
std::vector<float> random_floats(tessera::Random& random, std::size_t count, float scale = 1.0f);
/// Values whose bits differ.
std::size_t differing(const std::vector<float>& a, const std::vector<float>& b);

inline sdk::Matrix matrix(float* data, std::int32_t rows, std::int32_t cols, std::int64_t stride) {
  return {data, sdk::DType::f32, rows, cols, stride};
}
inline sdk::Matrix matrix(float* data, std::int32_t rows, std::int32_t cols) { return matrix(data, rows, cols, cols); }

/// Rows of a few sequences on scattered pages, every row wanting logits; owns what `view` points to.
struct Step {
  std::vector<std::int32_t> tokens, positions, row_slice, pages, logit_rows;
  std::vector<sdk::Slice> slices;
  std::int32_t pool_pages = 0;

  /// Adds rows at the positions [first, first + rows) of a new sequence.
  void add(std::int32_t first, std::int32_t rows);
  sdk::PackedRows view() const;
};

}  // namespace cuda_test
