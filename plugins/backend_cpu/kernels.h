// Kernels of one instruction set, behind plain function pointers. Orders of operations: docs/numerics.md.
#pragma once
#include <cstdint>

#include "tessera/sdk/backend.h"

namespace tessera_cpu {

inline constexpr int kPanel = 64;  // outputs packed side by side

/// A weight as packed at load: [panel][k][64], the last panel padded with zeros.
struct PackedLinear {
  const void* data;
  bool bf16;  // else f32
  std::int32_t outputs;
  std::int32_t inputs;
  const float* bias;  // [outputs] or null
};

struct KernelTable {
  /// Outputs of one panel for rows [row_begin, row_end). `scratch` holds 512 * 64 floats.
  void (*linear_panel)(const PackedLinear& weight, std::int64_t panel, const tessera::sdk::Matrix& x,
                       const tessera::sdk::Matrix& y, std::int32_t row_begin, std::int32_t row_end, float* scratch);
  void (*rms_norm_row)(float* x, const float* delta, const float* weight, float eps, std::int32_t width, float* out);
  void (*rotary_row)(const tessera::sdk::RotaryArgs& args, std::int32_t row);
  void (*swiglu_row)(const float* gate_up, std::int32_t width, float* out);
};

namespace scalar {
extern const KernelTable kTable;
}
namespace avx2 {
extern const KernelTable kTable;
}
namespace avx512 {
extern const KernelTable kTable;
}

}  // namespace tessera_cpu
