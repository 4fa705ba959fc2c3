// Attention over the canonical paged pool.
#pragma once
#include <cstddef>
#include <cstdint>

#include "tessera/sdk/abi.h"
#include "tessera/sdk/batch.h"
#include "tessera/sdk/device.h"
#include "tessera/sdk/kv.h"
#include "tessera/sdk/tensor.h"

namespace tessera::sdk {

struct AttentionShape {
  std::int32_t num_layers;
  std::int32_t num_q_heads;
  std::int32_t num_kv_heads;  // divides num_q_heads
  std::int32_t head_dim;
  float scale;  // softmax scale, computed once on the host
  DType kv_dtype;
};

struct AttentionArgs {
  Matrix q;    // [rows][num_q_heads * head_dim], rotated; f32 in the f32 profile
  Matrix out;  // [rows][num_q_heads * head_dim]
  KvView kv;   // rows' own K and V of this layer are already in it
  std::int32_t layer;
  PackedRows rows;  // device pointers
  void* workspace;  // `workspace_bytes` from bind, uninitialized
  /// Optional (only with kEmitsScores): f32 scores, scores[(row * num_q_heads + head) * scores_stride + position].
  float* scores;
  std::int64_t scores_stride;
};

/// One kernel of a planned step on a GPU, for reports.
struct KernelFacts {
  const char* name;  // static storage
  std::int32_t threads;
  std::int32_t registers;     // of a thread
  std::int64_t shared_bytes;  // of a block, static and dynamic
  std::int32_t blocks;        // that a multiprocessor holds at a time
  double occupancy;           // its share of the multiprocessor's threads, 0..1
};

/// One object per model; every call comes from the engine thread.
///
///   create -> bind -> (plan -> run x layers)* -> destroy
///
/// Row r at position p sees positions 0..p of its slice's page table and nothing else. The f32 order is
/// docs/numerics.md, "Attention". Attention writes every element of `out` and nothing else.
class Attention {
 public:
  static constexpr Kind kKind = Kind::attention;

  /// Values of the option `variant`, separated by spaces, the default first. Static storage.
  virtual const char* variants() const noexcept { return "auto"; }
  /// With kPortableBits: whether this instance gives the reference's bits. A plugin may have variants that do not.
  virtual bool exact() const noexcept { return true; }
  /// Calls of `run` that a slower kernel than the one asked for had to serve. Its bits are the same.
  virtual std::uint64_t fallbacks() const noexcept { return 0; }
  /// Kernels that `run` launches for the step planned last, in order; writes at most `capacity` and returns how many.
  virtual std::int32_t kernels(KernelFacts* out, std::int32_t capacity) const noexcept {
    (void)out, (void)capacity;
    return 0;
  }

  /// [control] Once. Refuses a shape it cannot serve, and says why. Device memory is claimed here and nowhere else;
  /// `workspace_bytes` is lent back on every run.
  virtual Status bind(const AttentionShape& shape, const StepLimits& limits, const DeviceContext& device,
                      std::size_t& workspace_bytes) noexcept = 0;

  /// [step] Once a step, with host pointers that are valid during the call: size splits by them, never index.
  virtual Status plan(const PackedRows& rows) noexcept = 0;

  /// [step] With kGraphCapturable: what `run` launches for the step planned last. Two steps of equally many rows,
  /// slices and logit rows and of one topology launch the same kernels with the same arguments, whatever their
  /// positions and pages: a step recorded for one is replayed for the other. Those launches also serve rows at lower
  /// positions than the planned ones, which are bounds then (rounds.h). 0: unknown, the step is launched kernel by
  /// kernel. On a CPU the planned positions are always the true ones.
  virtual std::uint64_t topology() const noexcept { return 0; }

  /// [step] Once a layer. Enqueues only: no allocation, no synchronization, no host copy.
  virtual Status run(const AttentionArgs& args, const DeviceContext& device) noexcept = 0;

 protected:
  ~Attention() = default;  // destroyed through Descriptor::destroy only
};

}  // namespace tessera::sdk
