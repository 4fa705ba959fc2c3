// A compute backend: memory, the stream and the operations a decoder needs, all on packed rows.
#pragma once
#include <cstddef>
#include <cstdint>

#include "tessera/sdk/abi.h"
#include "tessera/sdk/batch.h"
#include "tessera/sdk/device.h"
#include "tessera/sdk/kv.h"
#include "tessera/sdk/rounds.h"
#include "tessera/sdk/tensor.h"

namespace tessera::sdk {

/// A weight packed by `prepare_linear`; owned by the backend, lives as long as it. Backends derive their own.
struct Linear {
  std::int32_t outputs;
  std::int32_t inputs;
  DType dtype;        // as kept in memory
  std::size_t bytes;  // what one pass over it reads
};

/// out[row] = x[row] * inv(row) * weight, inv = 1 / sqrt(sum / cols + eps). With `delta`, x += delta first, in place.
/// The order of the sum is docs/numerics.md, "RMSNorm".
struct NormArgs {
  Matrix x;
  const Matrix* delta;  // may be null
  const float* weight;  // [cols]
  float eps;
  Matrix out;
};

/// Splits a packed [q | k | v] projection, normalizes heads (if given), rotates q and k, appends k and v to the pool.
/// Half-split rotation: component i pairs with i + rotary_dim / 2; components from rotary_dim on pass through.
struct RotaryArgs {
  Matrix qkv;    // [rows][(q_heads + 2 kv_heads) * head_dim]
  Matrix q_out;  // [rows][q_heads * head_dim]
  std::int32_t num_q_heads;
  std::int32_t num_kv_heads;
  std::int32_t head_dim;
  std::int32_t rotary_dim;  // even, <= head_dim
  const float* cosines;     // [max_context][rotary_dim / 2], computed on the host in f64
  const float* sines;
  const float* q_norm;  // [head_dim] or null
  const float* k_norm;  // [head_dim] or null
  float eps;
  KvView kv;
  std::int32_t layer;
  PackedRows rows;  // device pointers
};

/// K and V of one position, all layers, from one page to another (the same slot of it).
struct KvCopy {
  std::int32_t from_page;
  std::int32_t to_page;
  std::int32_t slot;
};

/// What a device can do at most, measured on it.
struct Ceilings {
  double flops;             // f32 a second, a fused multiply-add counts two
  double bytes_per_second;  // read from its memory
};

/// Every call comes from the engine thread. Pointers named "device" are in the backend's memory (host memory on a CPU).
///
///   create -> bind -> allocate/prepare... -> (begin_step -> operations -> download)* -> destroy
///
/// One arithmetic: each output element is one fixed sequence of operations (docs/numerics.md), whatever the row count.
class Backend {
 public:
  static constexpr Kind kKind = Kind::backend;

  /// [control] Once: claims everything the operations below need for these limits.
  virtual Status bind(const StepLimits& limits) noexcept = 0;
  virtual DeviceContext context() noexcept = 0;
  /// [control] Bytes of the device's memory, and of it free now.
  virtual Status memory(std::size_t* total, std::size_t* free) noexcept = 0;
  /// [control] Zeroed, touched device memory, aligned to 256; freed with the backend.
  virtual Status allocate(std::size_t bytes, void** device) noexcept = 0;
  virtual Status upload(void* device, const void* host, std::size_t bytes) noexcept = 0;
  /// [step] Waits for the stream, then copies.
  virtual Status download(void* host, const void* device, std::size_t bytes) noexcept = 0;

  /// [control] Packs the parts, concatenated along outputs, into one weight. All parts have the same cols and dtype.
  /// `bias` is f32 [sum of rows] on the host, or null; it is added after the last segment.
  virtual Status prepare_linear(const HostMatrix* parts, std::size_t count, const float* bias,
                                const Linear** out) noexcept = 0;

  /// [step] Copies the step's metadata to the device once; `device` gets the same fields with device pointers.
  virtual Status begin_step(const PackedRows& host, PackedRows* device) noexcept = 0;
  /// [step] out[r] = row tokens[r] of the table (a prepared weight [vocab][width]), widened exactly.
  virtual Status embed(const Linear& table, const PackedRows& rows, const Matrix& out) noexcept = 0;
  virtual Status rms_norm(const NormArgs& args) noexcept = 0;
  /// [step] y[r][o] = sum over k of x[r][k] * w[o][k] (+ bias[o]), in the order of docs/numerics.md, "Linear".
  virtual Status linear(const Linear& weight, const Matrix& x, const Matrix& y) noexcept = 0;
  virtual Status rotary_append(const RotaryArgs& args) noexcept = 0;
  /// [step] gate_up is [rows][2 * width] (gate first); out[r][i] = silu(gate) * up.
  virtual Status swiglu(const Matrix& gate_up, const Matrix& out) noexcept = 0;
  /// [step] out[i] = x[rows.logit_rows[i]] + delta[rows.logit_rows[i]] (delta may be null).
  virtual Status gather(const Matrix& x, const Matrix* delta, const PackedRows& rows, const Matrix& out) noexcept = 0;

  /// [step] Looped models: out[r] = bank[rows.states[r]] for the rows of slices of depth > 0; others are left alone.
  virtual Status load_states(const Matrix& bank, const PackedRows& rows, const Matrix& out) noexcept {
    (void)bank, (void)rows, (void)out;
    return fail(Code::unsupported, "this backend serves no looped models");
  }
  /// [step] bank[rows.states[r]] = x[r] for the rows with a state.
  virtual Status store_states(const Matrix& x, const PackedRows& rows, const Matrix& bank) noexcept {
    (void)x, (void)rows, (void)bank;
    return fail(Code::unsupported, "this backend serves no looped models");
  }
  /// [step] `copies` are on the host and read during the call; no two write the same place, none reads a written one.
  virtual Status copy_kv(const KvView& kv, const KvCopy* copies, std::int32_t count) noexcept {
    (void)kv, (void)copies, (void)count;
    return fail(Code::unsupported, "this backend serves no looped models");
  }

  /// [control] Optional: the roofs that benchmarks print; takes less than a second.
  virtual Status measure_ceilings(Ceilings* out) noexcept {
    *out = {};
    return fail(Code::unsupported, "this backend does not measure its device");
  }

  /// [step] Optional (kGraphCapturable): record what follows instead of running it, then replay it any number of times,
  /// until it is forgotten. begin_step, downloads and copy_kv stay outside. Which steps share a graph is the caller's
  /// to know. After capture_end has failed nothing is recorded and the stream is as before.
  virtual Status capture_begin() noexcept { return fail(Code::unsupported, "this backend records no graphs"); }
  virtual Status capture_end(std::uint64_t* graph) noexcept {
    *graph = 0;
    return fail(Code::unsupported, "this backend records no graphs");
  }
  virtual Status replay(std::uint64_t graph) noexcept {
    (void)graph;
    return fail(Code::unsupported, "this backend records no graphs");
  }
  virtual Status forget(std::uint64_t graph) noexcept {
    (void)graph;
    return fail(Code::unsupported, "this backend records no graphs");
  }

  /// Optional: what rounds of speculation in flight need; owned by the backend. Null: it has none.
  virtual Rounds* rounds() noexcept { return nullptr; }

 protected:
  ~Backend() = default;  // destroyed through Descriptor::destroy only
};

}  // namespace tessera::sdk
