#include "model/families.h"

#include <algorithm>

namespace tessera {

bool ConfigReader::has(const char* key) const { return json_.contains(key) && !json_.at(key).is_null(); }

std::string shown(const nlohmann::json& value) {
  if (value.is_structured()) return value.is_array() ? "a list" : "an object";
  std::string text = value.dump();
  if (text.size() <= 80) return text;
  std::size_t size = 80;
  while (size > 0 && (static_cast<unsigned char>(text[size]) & 0xC0) == 0x80) --size;
  return text.substr(0, size) + "...";
}

void ConfigReader::refuse(Status status) {
  if (status_.ok()) status_ = status;
}

std::int32_t ConfigReader::integer(const char* key, std::int64_t min, std::int64_t max,
                                   std::optional<std::int32_t> fallback) {
  if (!has(key)) {
    if (fallback) return *fallback;
    refuse(fail(Code::invalid_argument, "{}: has no {}; wanted a whole number", source_, key));
    return static_cast<std::int32_t>(min);
  }
  const nlohmann::json& value = at(key);
  if (value.is_number_integer() && value.get<std::int64_t>() >= min && value.get<std::int64_t>() <= max)
    return value.get<std::int32_t>();
  refuse(fail(Code::invalid_argument, "{}: {} is {}; wanted a whole number from {} to {}", source_, key, shown(value),
              min, max));
  return static_cast<std::int32_t>(min);
}

double ConfigReader::real(const char* key, double min, double max, double fallback) {
  if (!has(key)) return fallback;
  const nlohmann::json& value = at(key);
  if (value.is_number() && value.get<double>() >= min && value.get<double>() <= max) return value.get<double>();
  refuse(fail(Code::invalid_argument, "{}: {} is {}; wanted a number from {} to {}", source_, key, shown(value), min,
              max));
  return fallback;
}

bool ConfigReader::boolean(const char* key, bool fallback) {
  if (!has(key)) return fallback;
  if (at(key).is_boolean()) return at(key).get<bool>();
  refuse(fail(Code::invalid_argument, "{}: {} is {}; wanted true or false", source_, key, shown(at(key))));
  return fallback;
}

std::string ConfigReader::text(const char* key, const std::string& fallback) {
  if (!has(key)) return fallback;
  if (at(key).is_string()) return at(key).get<std::string>();
  refuse(fail(Code::invalid_argument, "{}: {} is {}; wanted a text", source_, key, shown(at(key))));
  return fallback;
}

namespace {

/// The rotary description of old ("rope_theta", "rope_scaling") and new ("rope_parameters") files.
void read_rotary(ConfigReader& reader, DecoderSpec& spec) {
  spec.rotary.dim = spec.head_dim;
  spec.rotary.theta = reader.real("rope_theta", 1, 1e12, 10000.0);
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    if (!reader.has(key)) continue;
    const nlohmann::json& rope = reader.at(key);
    ConfigReader inner(rope, reader.source() + ": " + key);
    if (!rope.is_object()) {
      reader.refuse(fail(Code::invalid_argument, "{}: {} is {}; wanted an object", reader.source(), key, shown(rope)));
      return;
    }
    const std::string type = inner.text("rope_type", inner.text("type", "default"));
    if (type != "default")
      reader.refuse(fail(Code::unsupported, "{}: {} has rotary type '{}', which is not served yet; wanted default",
                         reader.source(), key, type));
    // One rotary description a layer kind: reading only the outer object would silently lose theta.
    for (const auto& [name, value] : rope.items())
      if (value.is_object())
        reader.refuse(fail(Code::unsupported,
                           "{}: {} describes '{}' by itself, which is not served yet; wanted one "
                           "description for all layers",
                           reader.source(), key, name));
    if (inner.real("partial_rotary_factor", 0, 1, 1) != 1.0)
      reader.refuse(fail(Code::unsupported, "{}: {} has a partial_rotary_factor other than 1, which is not served yet",
                         reader.source(), key));
    spec.rotary.theta = inner.real("rope_theta", 1, 1e12, spec.rotary.theta);
    if (!inner.status().ok()) reader.refuse(inner.status());
  }
}

/// config.json may name classes; one of them must be the language model that the family's weights belong to.
void check_architecture(ConfigReader& reader, const char* wanted) {
  if (!reader.has("architectures")) return;
  const nlohmann::json& names = reader.at("architectures");
  if (names.is_array() && (names.empty() || std::find(names.begin(), names.end(), wanted) != names.end())) return;
  reader.refuse(fail(Code::unsupported, "{}: architectures is {}, which is not served yet; wanted {}", reader.source(),
                     names.is_array() ? shown(names.front()) : shown(names), wanted));
}

void refuse_unserved(ConfigReader& reader) {
  const std::string activation = reader.text("hidden_act", "silu");
  if (activation != "silu")
    reader.refuse(
        fail(Code::unsupported, "{}: hidden_act '{}' is not served yet; wanted silu", reader.source(), activation));
  if (reader.real("partial_rotary_factor", 0, 1, 1) != 1.0)
    reader.refuse(fail(Code::unsupported, "{}: partial_rotary_factor is {}, which is not served yet; wanted 1",
                       reader.source(), shown(reader.at("partial_rotary_factor"))));
  if (reader.boolean("use_sliding_window", false))
    reader.refuse(fail(Code::unsupported, "{}: use_sliding_window is true, which is not served yet; wanted false",
                       reader.source()));
  if (reader.has("layer_types")) {
    const nlohmann::json& kinds = reader.at("layer_types");
    const bool full = kinds.is_array() && std::all_of(kinds.begin(), kinds.end(),
                                                      [](const auto& kind) { return kind == "full_attention"; });
    if (!full)
      reader.refuse(fail(Code::unsupported,
                         "{}: layer_types holds other layers (a sliding window?), which are not "
                         "served yet; wanted full_attention only",
                         reader.source()));
  }
  if (reader.has("quantization_config"))
    reader.refuse(fail(Code::unsupported, "{}: quantization_config is not served yet; wanted F32, BF16 or F16 weights",
                       reader.source()));
}

/// `head_dim_required`: families whose own default is not hidden / heads.
void describe_common(ConfigReader& reader, DecoderSpec& spec, const char* architecture,
                     bool head_dim_required = false) {
  check_architecture(reader, architecture);
  spec.vocab = reader.integer("vocab_size", 1, kMaxVocab);
  spec.hidden = reader.integer("hidden_size", 1, 1 << 17);
  spec.intermediate = reader.integer("intermediate_size", 1, 1 << 20);
  spec.layers = reader.integer("num_hidden_layers", 1, 1024);
  spec.q_heads = reader.integer("num_attention_heads", 1, 1024);
  spec.kv_heads = reader.integer("num_key_value_heads", 1, 1024, spec.q_heads);
  if (reader.has("head_dim") || head_dim_required) {
    spec.head_dim = reader.integer("head_dim", 1, 1024);
  } else if (reader.status().ok()) {
    if (spec.hidden % spec.q_heads != 0)
      reader.refuse(fail(Code::invalid_argument,
                         "{}: hidden_size {} does not divide into {} attention heads; wanted a "
                         "multiple, or head_dim",
                         reader.source(), spec.hidden, spec.q_heads));
    spec.head_dim = spec.hidden / spec.q_heads;
  }
  spec.max_context = reader.integer("max_position_embeddings", 1, 1 << 24);
  spec.norm_eps = static_cast<float>(reader.real("rms_norm_eps", 0, 1, 1e-6));
  spec.tied_embeddings = reader.boolean("tie_word_embeddings", false);
  if (reader.has("bos_token_id")) spec.bos = reader.integer("bos_token_id", 0, spec.vocab - 1);
  if (!reader.status().ok()) return;
  if (spec.q_heads % spec.kv_heads != 0)
    reader.refuse(fail(Code::invalid_argument,
                       "{}: num_key_value_heads is {}; wanted a divisor of the {} attention heads", reader.source(),
                       spec.kv_heads, spec.q_heads));
  if (spec.head_dim % 32 != 0)
    reader.refuse(fail(Code::unsupported, "{}: head_dim is {}, but head_dim must be a multiple of 32", reader.source(),
                       spec.head_dim));
  read_rotary(reader, spec);
  refuse_unserved(reader);
}

void describe_llama(ConfigReader& reader, DecoderSpec& spec) {
  describe_common(reader, spec, "LlamaForCausalLM");
  spec.qkv_bias = spec.output_bias = reader.boolean("attention_bias", false);
  spec.mlp_bias = reader.boolean("mlp_bias", false);
}

void describe_qwen2(ConfigReader& reader, DecoderSpec& spec) {
  describe_common(reader, spec, "Qwen2ForCausalLM");
  spec.qkv_bias = true;
}

void describe_qwen3(ConfigReader& reader, DecoderSpec& spec) {
  describe_common(reader, spec, "Qwen3ForCausalLM", true);
  spec.qk_norm = true;
  spec.qkv_bias = spec.output_bias = reader.boolean("attention_bias", false);
}

/// Looped: config.json of the published Ouro checkpoints (model_type "ouro").
void describe_ouro(ConfigReader& reader, DecoderSpec& spec) {
  describe_common(reader, spec, "OuroForCausalLM");
  spec.norms = NormPlacement::sandwich;
  spec.loops = reader.integer("total_ut_steps", 1, kMaxLoops);
  spec.exit_gate = true;
  spec.exit_threshold = static_cast<float>(reader.real("early_exit_threshold", 0, 1, 1));
  if (reader.has("early_exit_step"))
    reader.refuse(fail(Code::unsupported,
                       "{}: early_exit_step is not served; leave it out and give max_loops with a request",
                       reader.source()));
}

constexpr Family kFamilies[] = {
    {"llama", describe_llama}, {"qwen2", describe_qwen2}, {"qwen3", describe_qwen3}, {"ouro", describe_ouro}};

}  // namespace

const Family* find_family(const std::string& model_type) {
  for (const Family& family : kFamilies)
    if (model_type == family.name) return &family;
  return nullptr;
}

std::string known_families() {
  std::string names;
  for (const Family& family : kFamilies) names += (names.empty() ? "" : ", ") + std::string(family.name);
  return names;
}

}  // namespace tessera
