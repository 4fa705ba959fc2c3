#include "model/spec.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "model/families.h"

namespace tessera {
namespace {

Result<std::string> read_file(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) return fail(Code::not_found, "{}: cannot be read; wanted a file of a model folder", path.string());
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

/// Ids of eos_token_id: a number, a list of numbers or null.
Status read_eos(const nlohmann::json& json, const std::string& source, std::int32_t vocab,
                std::vector<std::int32_t>& eos) {
  const auto found = json.find("eos_token_id");
  if (found == json.end() || found->is_null()) return {};
  const nlohmann::json ids = found->is_array() ? *found : nlohmann::json::array({*found});
  for (const nlohmann::json& id : ids) {
    if (!id.is_number_integer() || id.get<std::int64_t>() < 0 || id.get<std::int64_t>() >= vocab)
      return fail(Code::invalid_argument, "{}: eos_token_id holds {}; wanted token ids from 0 to {}", source, shown(id),
                  vocab - 1);
    const auto value = id.get<std::int32_t>();
    if (std::find(eos.begin(), eos.end(), value) == eos.end()) eos.push_back(value);
  }
  return {};
}

}  // namespace

float DecoderSpec::attention_scale() const {
  return static_cast<float>(1.0 / std::sqrt(static_cast<double>(head_dim)));
}

std::int64_t DecoderSpec::parameters() const {
  const std::int64_t h = hidden, q = q_width(), kv = kv_width(), m = intermediate;
  std::int64_t layer = h * (q + 2 * kv) + q * h + 3 * h * m + 2 * h;
  if (norms == NormPlacement::sandwich) layer += 2 * h;
  if (qk_norm) layer += 2 * head_dim;
  if (qkv_bias) layer += q + 2 * kv;
  if (output_bias) layer += h;
  if (mlp_bias) layer += 2 * m + h;
  return layer * layers + std::int64_t{vocab} * h * (tied_embeddings ? 1 : 2) + h + (exit_gate ? h + 1 : 0);
}

Result<DecoderSpec> parse_spec(std::string_view text, std::string_view source_name) {
  const std::string source(source_name);
  const nlohmann::json json = nlohmann::json::parse(text, nullptr, false);
  if (!json.is_object())
    return fail(Code::invalid_argument, "{}: is no JSON object; wanted a model's config.json", source);
  const auto type = json.find("model_type");
  if (type == json.end() || !type->is_string())
    return fail(Code::invalid_argument, "{}: has no text model_type; wanted one of {}", source, known_families());
  const Family* family = find_family(type->get<std::string>());
  if (family == nullptr)
    return fail(Code::unsupported, "{}: model_type {} is not served yet; wanted one of {}", source, shown(*type),
                known_families());
  ConfigReader reader(json, source);
  DecoderSpec spec;
  spec.family = family->name;
  family->describe(reader, spec);
  if (!reader.status().ok()) return reader.status();
  TESSERA_TRY(read_eos(json, source, spec.vocab, spec.eos));
  return spec;
}

Result<DecoderSpec> read_spec(const std::filesystem::path& model_dir) {
  const std::filesystem::path path = model_dir / "config.json";
  auto text = read_file(path);
  if (!text.ok()) return text.status();
  auto spec = parse_spec(*text, path.string());
  if (!spec.ok()) return spec.status();
  const std::filesystem::path generation = model_dir / "generation_config.json";
  std::error_code error;
  if (std::filesystem::exists(generation, error)) {
    auto extra = read_file(generation);
    if (!extra.ok()) return extra.status();
    const nlohmann::json json = nlohmann::json::parse(*extra, nullptr, false);
    if (!json.is_object())
      return fail(Code::invalid_argument, "{}: is no JSON object; wanted one, or no such file", generation.string());
    TESSERA_TRY(read_eos(json, generation.string(), spec->vocab, spec->eos));
  }
  return spec;
}

std::string tensor_name(const DecoderSpec&, TensorName::Part part, std::int32_t layer) {
  const auto in_layer = [layer](const char* name) { return fmt::format("model.layers.{}.{}", layer, name); };
  switch (part) {
    case TensorName::embedding: return "model.embed_tokens.weight";
    case TensorName::final_norm: return "model.norm.weight";
    case TensorName::lm_head: return "lm_head.weight";
    case TensorName::exit_gate: return "model.early_exit_gate.weight";
    case TensorName::exit_bias: return "model.early_exit_gate.bias";
    case TensorName::attn_norm_after: return in_layer("input_layernorm_2.weight");
    case TensorName::mlp_norm_after: return in_layer("post_attention_layernorm_2.weight");
    case TensorName::attn_norm: return in_layer("input_layernorm.weight");
    case TensorName::mlp_norm: return in_layer("post_attention_layernorm.weight");
    case TensorName::q: return in_layer("self_attn.q_proj.weight");
    case TensorName::k: return in_layer("self_attn.k_proj.weight");
    case TensorName::v: return in_layer("self_attn.v_proj.weight");
    case TensorName::o: return in_layer("self_attn.o_proj.weight");
    case TensorName::q_bias: return in_layer("self_attn.q_proj.bias");
    case TensorName::k_bias: return in_layer("self_attn.k_proj.bias");
    case TensorName::v_bias: return in_layer("self_attn.v_proj.bias");
    case TensorName::o_bias: return in_layer("self_attn.o_proj.bias");
    case TensorName::q_norm: return in_layer("self_attn.q_norm.weight");
    case TensorName::k_norm: return in_layer("self_attn.k_norm.weight");
    case TensorName::gate: return in_layer("mlp.gate_proj.weight");
    case TensorName::up: return in_layer("mlp.up_proj.weight");
    case TensorName::down: return in_layer("mlp.down_proj.weight");
    case TensorName::gate_bias: return in_layer("mlp.gate_proj.bias");
    case TensorName::up_bias: return in_layer("mlp.up_proj.bias");
    case TensorName::down_bias: return in_layer("mlp.down_proj.bias");
  }
  return "";
}

}  // namespace tessera
