// The one decoder: prepared weights and the packed forward pass.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/status.h"
#include "model/graph_cache.h"
#include "model/spec.h"
#include "model/weights.h"
#include "tessera/sdk/attention.h"
#include "tessera/sdk/backend.h"
#include "tessera/sdk/sparse_decode.h"

namespace tessera {

/// Neighbouring slices of one mode. A step's rows come as groups: the metadata of a group counts its rows and slices
/// from its own first ones, so that each is a PackedRows of its own.
struct RowGroup {
  sdk::RowMode mode;
  std::int32_t first_row, num_rows;
  std::int32_t first_slice, num_slices;
  std::int32_t first_kept_row = 0,
               first_kept_slice = 0;  // selecting rows: where they come again, with their kept pages
};
/// The rows of the group as attention sees them when they select.
sdk::PackedRows kept_of(const sdk::PackedRows& step, const RowGroup& group);
/// The group's part of a step's metadata, on the host or on the device.
sdk::PackedRows group_of(const sdk::PackedRows& step, const RowGroup& group);

/// What a forward pass runs on besides the weights.
struct PassContext {
  sdk::Attention& attention;
  sdk::SparseDecode* sparse;  // null: every group is dense
  void* workspace;
  void* sparse_workspace;
  const sdk::KvView& kv;
  std::span<const RowGroup> groups;  // of all the rows, in order
  GraphCache& graphs;
};

/// What it gives back, on the host.
struct PassAnswer {
  std::vector<float> logits;  // [num_logit_rows][vocab]
  std::vector<float> exits;   // [num_logit_rows] with an exit gate: probability that this loop is the last one needed
  std::vector<float> masses;  // when asked for: [layer][captured rows][q_heads], the attention that selections kept
};

/// Owns nothing on the device: the backend does. Used by the engine thread only.
class Decoder {
 public:
  /// Prepares every weight and claims the activations for `limits`, with room for scores where rows are captured.
  static Result<std::unique_ptr<Decoder>> load(const DecoderSpec& spec, WeightSource& weights, sdk::Backend& backend,
                                               const sdk::StepLimits& limits, bool captures);

  const DecoderSpec& spec() const { return spec_; }
  /// Bytes of weights that one decode step reads.
  std::size_t weight_bytes() const;

  /// One pass over the layers for all rows, each at its slice's depth: appends their K and V, keeps the hidden states
  /// of rows that go on, and answers for the rows that want it.
  Status forward(const PassContext& context, const sdk::PackedRows& packed, bool want_masses, PassAnswer& answer);
  // The parts of `forward`, for passes whose tokens and positions the device alone knows (engine/device_rounds.h).
  /// Plans the pass by the positions of `host`, whose groups are the context's. Gives what its launches depend on;
  /// empty: that is not known.
  Result<GraphKey> plan_pass(const PassContext& context, const sdk::PackedRows& host, const sdk::PackedRows& device);
  /// All that the pass planned last computes, logits included. Enqueues only.
  Status enqueue(const PassContext& context);
  /// Of the pass enqueued last: its logits on the device, and on the host once it is done.
  sdk::Matrix logits(std::int32_t rows) const { return rows_of(logits_, rows); }
  Status read_logits(std::int32_t rows, std::vector<float>& logits) const;
  /// What the last enqueued pass with the context's captured rows kept: PassAnswer::masses.
  Status read_masses(const PassContext& context, std::vector<float>& masses) const;
  /// The first `count` rows of the state bank, appended to `states`: a look at a looped model between two passes.
  Status read_states(std::int32_t count, std::vector<float>& states) const;
  /// Rows of the state bank; 0 for a plain model.
  static std::int32_t num_states(const DecoderSpec& spec, const sdk::StepLimits& limits) {
    return spec.loops > 1 ? 2 * limits.max_rows : 0;
  }

 private:
  struct Layer {
    const float* attn_norm;
    const float* mlp_norm;
    const float* attn_norm_after;  // null: no sandwich
    const float* mlp_norm_after;
    const float* q_norm;
    const float* k_norm;
    const sdk::Linear* qkv;
    const sdk::Linear* output;
    const sdk::Linear* gate_up;
    const sdk::Linear* down;
  };

  Decoder(const DecoderSpec& spec, sdk::Backend& backend) : spec_(spec), backend_(backend) {}
  Status load_layer(WeightSource& weights, std::int32_t index);
  Status load_fused(WeightSource& weights, std::int32_t layer, std::vector<TensorName::Part> parts,
                    std::vector<std::int32_t> rows, std::int32_t cols, std::vector<TensorName::Part> biases,
                    const sdk::Linear** out);
  Status load_vector(WeightSource& weights, TensorName::Part part, std::int32_t layer, std::int32_t size,
                     const float** out);
  Status upload_floats(const std::vector<float>& values, const float** out);
  Status load_rotary(std::int32_t max_context);
  Status claim(const sdk::StepLimits& limits, bool captures);
  /// Of all rows: [q | k | v] in qkv_ to attended_.
  Status attend(const PassContext& context, std::int32_t layer, const sdk::PackedRows& device);
  Status attend_group(const PassContext& context, const RowGroup& group, std::int32_t layer,
                      const sdk::PackedRows& rows);
  Status attend_kept(const PassContext& context, const RowGroup& group, std::int32_t layer, const sdk::Matrix& q,
                     const sdk::Matrix& attended);
  /// Plans every group and notes what the launches depend on.
  Status plan(const PassContext& context);
  Status run_layer(const PassContext& context, std::int32_t index, const sdk::PackedRows& device);
  /// The sublayer's output, normalized where the model wants it, waits in delta_ for the next norm to add it.
  Status finish_sublayer(const float* norm_after, const sdk::Matrix& delta);
  /// Logits and exit probabilities of rows after the final norm, on the device and then on the host.
  Status enqueue_answer(const sdk::Matrix& last);
  Status fetch_answer(PassAnswer& answer);
  float* masses_of(std::int32_t layer) const;
  sdk::Matrix rows_of(const sdk::Matrix& buffer, std::int32_t rows) const;

  DecoderSpec spec_;
  sdk::Backend& backend_;
  const sdk::Linear* embedding_ = nullptr;
  const sdk::Linear* lm_head_ = nullptr;
  const float* final_norm_ = nullptr;
  const sdk::Linear* exit_gate_ = nullptr;
  const float* cosines_ = nullptr;
  const float* sines_ = nullptr;
  std::vector<Layer> layers_;
  // Activations, all f32 [max_rows][...]: the residual stream, what the next norm adds to it, and scratch.
  sdk::Matrix hidden_{}, delta_{}, normed_{}, qkv_{}, q_{}, attended_{}, gate_up_{}, gated_{}, last_{}, logits_{};
  sdk::PackedRows host_{}, device_{};  // of the running step
  GraphKey key_;                       // likewise; empty when its launches are not known
  float* scores_ = nullptr;            // sparse: [max_decode_rows][q_heads][max_context]
  sdk::Matrix masses_{};               // sparse: [layers][max_decode_rows * q_heads]
  std::int32_t max_context_ = 0;
  sdk::Matrix gates_{}, states_{};  // looped: [max_logit_rows][1]; hidden states between passes
};

}  // namespace tessera
