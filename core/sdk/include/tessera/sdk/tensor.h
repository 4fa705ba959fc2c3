// Element types and plain views of matrices. Views own nothing.
#pragma once
#include <cstddef>
#include <cstdint>

// Marks what kernels call too.
#if defined(__CUDACC__)
#define TESSERA_HOST_DEVICE __host__ __device__
#else
#define TESSERA_HOST_DEVICE
#endif

namespace tessera::sdk {

enum class DType : std::uint32_t { f32 = 0, bf16 = 1, f16 = 2, i8 = 3, i32 = 4 };

constexpr std::size_t dtype_bytes(DType type) noexcept {
  switch (type) {
    case DType::f32: return 4;
    case DType::bf16: return 2;
    case DType::f16: return 2;
    case DType::i8: return 1;
    case DType::i32: return 4;
  }
  return 0;
}

constexpr const char* dtype_name(DType type) noexcept {
  switch (type) {
    case DType::f32: return "f32";
    case DType::bf16: return "bf16";
    case DType::f16: return "f16";
    case DType::i8: return "i8";
    case DType::i32: return "i32";
  }
  return "unknown";
}

/// Row-major [rows][cols], `stride` elements from one row to the next, in device memory. One row is one token.
struct Matrix {
  void* data;
  DType dtype;
  std::int32_t rows;
  std::int32_t cols;
  std::int64_t stride;

  TESSERA_HOST_DEVICE float* f32(std::int64_t row = 0) const noexcept {
    return static_cast<float*>(data) + row * stride;
  }
};

/// Host memory, row-major [rows][cols] without gaps: a weight as the checkpoint stores it. May be unaligned to nothing
/// worse than its element size. Valid during the call only.
struct HostMatrix {
  const void* data;
  DType dtype;
  std::int32_t rows;  // outputs
  std::int32_t cols;  // inputs
};

}  // namespace tessera::sdk
