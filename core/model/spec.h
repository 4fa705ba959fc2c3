// A decoder described by data.
#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "tessera/sdk/tensor.h"

namespace tessera {

struct RotarySpec {
  double theta = 10000.0;
  std::int32_t dim = 0;  // rotated components of a head
};

/// Where a norm sits: before each sublayer (Llama), or before and after (sandwich).
enum class NormPlacement { pre, sandwich };
enum class Activation { silu };

struct DecoderSpec {
  std::string family;  // "llama", "qwen2", "qwen3", "ouro"
  std::int32_t vocab = 0;
  std::int32_t hidden = 0;
  std::int32_t intermediate = 0;
  std::int32_t layers = 0;
  std::int32_t q_heads = 0;
  std::int32_t kv_heads = 0;
  std::int32_t head_dim = 0;
  std::int32_t max_context = 0;  // positions the checkpoint was made for
  float norm_eps = 1e-6f;
  RotarySpec rotary;
  NormPlacement norms = NormPlacement::pre;
  Activation activation = Activation::silu;
  bool qk_norm = false;
  bool qkv_bias = false;
  bool output_bias = false;  // of the attention output projection
  bool mlp_bias = false;
  bool tied_embeddings = false;
  std::int32_t loops = 1;         // passes over the layers with the same weights; each has its own KV (a depth)
  bool exit_gate = false;         // a scalar after each loop says how likely its answer is final
  float exit_threshold = 1;       // of the summed exit probability; from 1 on every token runs all loops
  std::vector<std::int32_t> eos;  // any of them ends an answer
  std::int32_t bos = -1;          // prepended to text prompts when the tokenizer says so; -1 = none

  std::int32_t q_width() const { return q_heads * head_dim; }
  std::int32_t kv_width() const { return kv_heads * head_dim; }
  /// Softmax scale, head_dim^-1/2 in f64 rounded to f32.
  float attention_scale() const;
  std::int64_t parameters() const;
};

/// Maps config.json of a model folder onto a spec through the adapter of its family. Refuses, by name, unknown
/// architectures, rotary types, activations and sliding windows; refuses absurd or inconsistent sizes.
Result<DecoderSpec> read_spec(const std::filesystem::path& model_dir);
Result<DecoderSpec> parse_spec(std::string_view config_json, std::string_view source_name);

/// The checkpoint's name for each weight of a layer (or of the model, layer < 0).
struct TensorName {
  enum Part {
    embedding,
    final_norm,
    lm_head,
    exit_gate,
    exit_bias,
    attn_norm,
    mlp_norm,
    attn_norm_after,  // sandwich: of a sublayer's output, before it joins the residual stream
    mlp_norm_after,
    q,
    k,
    v,
    o,
    q_bias,
    k_bias,
    v_bias,
    o_bias,
    q_norm,
    k_norm,
    gate,
    up,
    down,
    gate_bias,
    up_bias,
    down_bias
  };
};
std::string tensor_name(const DecoderSpec& spec, TensorName::Part part, std::int32_t layer = -1);

}  // namespace tessera
