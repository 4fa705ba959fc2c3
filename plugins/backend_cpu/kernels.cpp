// Compiled once for each instruction set (TESSERA_ISA); the operations and their order are the same in all of them.
#include "kernels.h"

#include "tessera/sdk/numerics.h"
#include "tessera/sdk/simd.h"

namespace tessera_cpu::TESSERA_ISA {
namespace {

namespace sdk = tessera::sdk;
using sdk::TESSERA_ISA::Strip;
using sdk::TESSERA_ISA::Vec;

constexpr int kSegment = sdk::kLinearSegment;
constexpr int kTileRows = 6;
constexpr int kWidenRows = 8;  // from here on widening a block once pays

/// Vectors of outputs one register tile spans, so that rows * vectors accumulators and the weights fit the registers
/// (32 of AVX-512, 16 of AVX2) and one row alone has chains enough to hide the latency of an fma.
constexpr int vectors_of(int rows) {
  if (Vec::kWidth == 16) return 4;
  if (Vec::kWidth == 8) return rows == 1 ? 8 : rows == 2 ? 4 : 2;
  return 4;
}

/// The tail of the last panel. Out of line: it is rare, and its code would cost the loop of every tile its registers.
[[gnu::noinline]] void finish_part(const float* out, float* y, bool first, int valid, const float* bias) {
  for (int i = 0; i < valid; ++i) {
    const float sum = first ? out[i] : y[i] + out[i];
    y[i] = bias == nullptr ? sum : sum + bias[i];
  }
}

/// Accumulators of `Rows` rows by `N` vectors.
template <int Rows, int N>
struct Tile {
  Strip<N> row;
  Tile<Rows - 1, N> rest;
  TESSERA_INLINE void clear() { row.clear(), rest.clear(); }
  TESSERA_INLINE void step(const float* x, std::int64_t stride, const Strip<N>& w) {
    row.fma(Vec::broadcast(*x), w), rest.step(x + stride, stride, w);
  }
  /// y = tile, or y + tile after the first segment; then + bias. Only `valid` outputs are touched.
  TESSERA_INLINE void finish(float* y, std::int64_t stride, bool first, int valid, const float* bias) {
    if (valid == N * Vec::kWidth) {
      if (!first) row.add(y);
      if (bias != nullptr) row.add(bias);
      row.store(y);
    } else {
      float out[N * Vec::kWidth];
      row.store(out);
      finish_part(out, y, first, valid, bias);
    }
    rest.finish(y + stride, stride, first, valid, bias);
  }
};

template <int N>
struct Tile<0, N> {
  TESSERA_INLINE void clear() {}
  TESSERA_INLINE void step(const float*, std::int64_t, const Strip<N>&) {}
  TESSERA_INLINE void finish(float*, std::int64_t, bool, int, const float*) {}
};

/// One segment of one panel against some rows.
struct Block {
  const float* x;  // at the first row and the segment's first k
  std::int64_t x_stride;
  float* y;  // at the first row and the panel's first output
  std::int64_t y_stride;
  int k_count;
  bool first;         // the first segment is stored, later ones are added to what is there
  int valid;          // outputs of this panel
  const float* bias;  // at the panel's first output, in the last segment only; else null
};

/// `Rows` rows from `row` on: for each output acc = fma(x[k], w[k], acc), k ascending, from +0.
/// Out of line (with internal linkage), so that registers are allotted for this loop alone.
template <int Rows, class Weight>
[[gnu::noinline]] void tile_at(const Weight* w, const Block& block, std::int64_t row, int part) {
  constexpr int kVectors = vectors_of(Rows);
  constexpr int kAhead = 16;  // k positions to prefetch ahead where weights stream from memory
  const float* x = block.x + row * block.x_stride;
  w += part;
  Tile<Rows, kVectors> tile;
  tile.clear();
  for (int k = 0; k < block.k_count; ++k) {
    if (Rows <= 2)
      for (int i = 0; i < kVectors * Vec::kWidth; i += 64 / static_cast<int>(sizeof(Weight)))
        __builtin_prefetch(w + (k + kAhead) * kPanel + i);
    Strip<kVectors> weights;
    weights.load(w + k * kPanel);
    tile.step(x + k, block.x_stride, weights);
  }
  const int left = block.valid - part;
  constexpr int kWide = kVectors * Vec::kWidth;
  tile.finish(block.y + row * block.y_stride + part, block.y_stride, block.first, left < kWide ? left : kWide,
              block.bias == nullptr ? nullptr : block.bias + part);
}

/// Rows [begin, end) in groups of `Rows`; one strip of weights stays in the cache over all of them.
template <int Rows, class Weight>
TESSERA_INLINE void sweep(const Weight* w, const Block& block, std::int64_t begin, std::int64_t end) {
  for (int part = 0; part < block.valid; part += vectors_of(Rows) * Vec::kWidth)
    for (std::int64_t row = begin; row + Rows <= end; row += Rows) tile_at<Rows>(w, block, row, part);
}

template <class Weight>
TESSERA_INLINE void panel_segment(const Weight* w, const Block& block, std::int64_t rows) {
  const std::int64_t whole = rows - rows % kTileRows;
  if (whole > 0) sweep<kTileRows>(w, block, 0, whole);
  switch (rows - whole) {
    case 1: sweep<1>(w, block, whole, rows); break;
    case 2: sweep<2>(w, block, whole, rows); break;
    case 3: sweep<3>(w, block, whole, rows); break;
    case 4: sweep<4>(w, block, whole, rows); break;
    case 5: sweep<5>(w, block, whole, rows); break;
    default: break;
  }
}

void linear_panel(const PackedLinear& weight, std::int64_t panel, const sdk::Matrix& x, const sdk::Matrix& y,
                  std::int32_t row_begin, std::int32_t row_end, float* scratch) {
  const std::int64_t output = panel * kPanel;
  const std::int64_t left = weight.outputs - output;
  const int rows = row_end - row_begin;
  for (int k = 0; k < weight.inputs; k += kSegment) {
    const int count = weight.inputs - k < kSegment ? weight.inputs - k : kSegment;
    const bool last = k + count == weight.inputs;
    const Block block{x.f32(row_begin) + k,
                      x.stride,
                      y.f32(row_begin) + output,
                      y.stride,
                      count,
                      k == 0,
                      left < kPanel ? static_cast<int>(left) : kPanel,
                      last && weight.bias != nullptr ? weight.bias + output : nullptr};
    const std::int64_t offset = (panel * weight.inputs + k) * kPanel;
    if (!weight.bf16) {
      panel_segment(static_cast<const float*>(weight.data) + offset, block, rows);
      continue;
    }
    const auto* narrow = static_cast<const std::uint16_t*>(weight.data) + offset;
    if (rows < kWidenRows) {
      panel_segment(narrow, block, rows);
      continue;
    }
    for (int i = 0; i < count * kPanel; i += Vec::kWidth) Vec::load(narrow + i).store(scratch + i);
    panel_segment(static_cast<const float*>(scratch), block, rows);
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
