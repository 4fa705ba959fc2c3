// Compiled once for each instruction set (TESSERA_ISA); the operations and their order are the same in all of them.
#include "kernels.h"

#include "tessera/sdk/numerics.h"
#include "vec.h"

namespace tessera_cpu::TESSERA_ISA {
namespace {

namespace sdk = tessera::sdk;

constexpr int kSegment = sdk::kLinearSegment;
constexpr int kTile = Vec::kWidth * Vec::kVectors;  // outputs of one register tile
constexpr int kWidenRows = 8;                       // from here on widening a block once pays

/// `Rows` chains of one segment for kTile outputs: acc = fma(x[k], w[k], acc), k ascending, from +0. The first segment
/// is stored, later ones are added to what is there. `valid` outputs are written.
template <int Rows, class Weight>
TESSERA_INLINE void tile(const Weight* w, const float* x, std::int64_t x_stride, float* y, std::int64_t y_stride,
                         int k_count, bool first, int valid, const float* bias) {
  Vec acc[Rows][Vec::kVectors];
  for (int r = 0; r < Rows; ++r)
    for (int v = 0; v < Vec::kVectors; ++v) acc[r][v] = Vec::zero();
  for (int k = 0; k < k_count; ++k) {
    Vec weights[Vec::kVectors];
    for (int v = 0; v < Vec::kVectors; ++v) weights[v] = Vec::load(w + k * kPanel + v * Vec::kWidth);
    for (int r = 0; r < Rows; ++r) {
      const Vec input = Vec::broadcast(x[r * x_stride + k]);
      for (int v = 0; v < Vec::kVectors; ++v) acc[r][v] = Vec::fma(input, weights[v], acc[r][v]);
    }
  }
  for (int r = 0; r < Rows; ++r) {
    float out[kTile];
    for (int v = 0; v < Vec::kVectors; ++v) acc[r][v].store(out + v * Vec::kWidth);
    float* target = y + r * y_stride;
    for (int i = 0; i < valid; ++i) {
      const float sum = first ? out[i] : target[i] + out[i];
      target[i] = bias == nullptr ? sum : sum + bias[i];
    }
  }
}

template <class Weight>
TESSERA_INLINE void rows_of_tile(const Weight* w, const float* x, std::int64_t x_stride, float* y,
                                 std::int64_t y_stride, int rows, int k_count, bool first, int valid,
                                 const float* bias) {
  int r = 0;
  for (; r + 6 <= rows; r += 6)
    tile<6>(w, x + r * x_stride, x_stride, y + r * y_stride, y_stride, k_count, first, valid, bias);
  const float* rest_x = x + r * x_stride;
  float* rest_y = y + r * y_stride;
  switch (rows - r) {
    case 1: tile<1>(w, rest_x, x_stride, rest_y, y_stride, k_count, first, valid, bias); break;
    case 2: tile<2>(w, rest_x, x_stride, rest_y, y_stride, k_count, first, valid, bias); break;
    case 3: tile<3>(w, rest_x, x_stride, rest_y, y_stride, k_count, first, valid, bias); break;
    case 4: tile<4>(w, rest_x, x_stride, rest_y, y_stride, k_count, first, valid, bias); break;
    case 5: tile<5>(w, rest_x, x_stride, rest_y, y_stride, k_count, first, valid, bias); break;
    default: break;
  }
}

template <class Weight>
TESSERA_INLINE void panel_segment(const Weight* block, const sdk::Matrix& x, const sdk::Matrix& y, std::int64_t output,
                                  std::int32_t row_begin, std::int32_t row_end, int k_begin, int k_count, int valid,
                                  const float* bias) {
  for (int part = 0; part < kPanel; part += kTile) {
    const int count = valid - part < kTile ? valid - part : kTile;
    if (count <= 0) return;
    rows_of_tile(block + part, x.f32(row_begin) + k_begin, x.stride, y.f32(row_begin) + output + part, y.stride,
                 row_end - row_begin, k_count, k_begin == 0, count, bias == nullptr ? nullptr : bias + part);
  }
}

void linear_panel(const PackedLinear& weight, std::int64_t panel, const sdk::Matrix& x, const sdk::Matrix& y,
                  std::int32_t row_begin, std::int32_t row_end, float* scratch) {
  const std::int64_t output = panel * kPanel;
  const std::int64_t left = weight.outputs - output;
  const int valid = left < kPanel ? static_cast<int>(left) : kPanel;
  for (int k = 0; k < weight.inputs; k += kSegment) {
    const int count = weight.inputs - k < kSegment ? weight.inputs - k : kSegment;
    const bool last = k + count == weight.inputs;
    const float* bias = last && weight.bias != nullptr ? weight.bias + output : nullptr;
    const std::int64_t offset = (panel * weight.inputs + k) * kPanel;
    if (!weight.bf16) {
      panel_segment(static_cast<const float*>(weight.data) + offset, x, y, output, row_begin, row_end, k, count, valid,
                    bias);
      continue;
    }
    const auto* narrow = static_cast<const std::uint16_t*>(weight.data) + offset;
    if (row_end - row_begin < kWidenRows) {
      panel_segment(narrow, x, y, output, row_begin, row_end, k, count, valid, bias);
      continue;
    }
    for (int i = 0; i < count * kPanel; i += Vec::kWidth) Vec::load(narrow + i).store(scratch + i);
    panel_segment(static_cast<const float*>(scratch), x, y, output, row_begin, row_end, k, count, valid, bias);
  }
}

/// 256 lanes: lane i chains x[i], x[i + 256], ... by fma from +0; fold_256; inv = 1 / sqrt(sum / width + eps).
TESSERA_INLINE float inverse_rms(const float* x, std::int32_t width, float eps) {
  float lanes[256];
  for (int i = 0; i < 256; ++i) lanes[i] = 0.0f;
  std::int32_t begin = 0;
  for (; begin + 256 <= width; begin += 256)
    for (int i = 0; i < 256; ++i) lanes[i] = sdk::fma_f32(x[begin + i], x[begin + i], lanes[i]);
  for (int i = 0; begin + i < width; ++i) lanes[i] = sdk::fma_f32(x[begin + i], x[begin + i], lanes[i]);
  const float mean = sdk::fold_256(lanes) / static_cast<float>(width);
  return 1.0f / __builtin_sqrtf(mean + eps);
}

void rms_norm_row(float* x, const float* delta, const float* weight, float eps, std::int32_t width, float* out) {
  if (delta != nullptr)
    for (std::int32_t i = 0; i < width; ++i) x[i] = x[i] + delta[i];
  const float inverse = inverse_rms(x, width, eps);
  for (std::int32_t i = 0; i < width; ++i) out[i] = (x[i] * inverse) * weight[i];
}

/// One head: optional norm, then the rotation of component i with i + rotary_dim / 2.
TESSERA_INLINE void rotate_head(const float* in, const float* norm, const sdk::RotaryArgs& args, const float* cosines,
                                const float* sines, float* out) {
  float inverse = 1.0f;
  if (norm != nullptr) inverse = inverse_rms(in, args.head_dim, args.eps);
  const std::int32_t half = args.rotary_dim / 2;
  for (std::int32_t i = 0; i < half; ++i) {
    float a = in[i], b = in[i + half];
    if (norm != nullptr) a = (a * inverse) * norm[i], b = (b * inverse) * norm[i + half];
    const float crossed = b * sines[i];
    out[i] = sdk::fma_f32(a, cosines[i], -crossed);
    out[i + half] = sdk::fma_f32(b, cosines[i], a * sines[i]);
  }
  for (std::int32_t i = args.rotary_dim; i < args.head_dim; ++i)
    out[i] = norm != nullptr ? (in[i] * inverse) * norm[i] : in[i];
}

void rotary_row(const sdk::RotaryArgs& args, std::int32_t row) {
  const std::int32_t position = args.rows.positions[row];
  const sdk::Slice& slice = args.rows.slices[args.rows.row_slice[row]];
  const std::int32_t page = args.rows.pages[slice.first_page + position / sdk::kPageSize];
  const std::int32_t slot = position % sdk::kPageSize;
  const std::int64_t table = static_cast<std::int64_t>(position) * (args.rotary_dim / 2);
  const float* cosines = args.cosines + table;
  const float* sines = args.sines + table;
  const float* in = args.qkv.f32(row);
  for (std::int32_t head = 0; head < args.num_q_heads; ++head)
    rotate_head(in + head * args.head_dim, args.q_norm, args, cosines, sines,
                args.q_out.f32(row) + head * args.head_dim);
  const float* keys = in + args.num_q_heads * args.head_dim;
  const float* values = keys + args.num_kv_heads * args.head_dim;
  for (std::int32_t head = 0; head < args.num_kv_heads; ++head) {
    const std::int64_t at = args.kv.offset(page, args.layer, slot, head);
    rotate_head(keys + head * args.head_dim, args.k_norm, args, cosines, sines, static_cast<float*>(args.kv.k) + at);
    float* value = static_cast<float*>(args.kv.v) + at;
    for (std::int32_t i = 0; i < args.head_dim; ++i) value[i] = values[head * args.head_dim + i];
  }
}

void swiglu_row(const float* gate_up, std::int32_t width, float* out) {
  for (std::int32_t i = 0; i < width; ++i) out[i] = sdk::silu_f32(gate_up[i]) * gate_up[width + i];
}

}  // namespace

extern const KernelTable kTable;
const KernelTable kTable{linear_panel, rms_norm_row, rotary_row, swiglu_row};

}  // namespace tessera_cpu::TESSERA_ISA
