#include "model/spec.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "base/random.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

json llama() {
  return json::parse(R"({"model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": 100,
    "hidden_size": 128, "intermediate_size": 160, "num_hidden_layers": 3, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 512, "rms_norm_eps": 1e-5, "rope_theta": 5000.0,
    "hidden_act": "silu", "eos_token_id": 2, "bos_token_id": 1})");
}

DecoderSpec good(const json& config) {
  auto spec = parse_spec(config.dump(), "config.json");
  INFO(spec.status().message);
  REQUIRE(spec.ok());
  return *spec;
}

/// The refusal of `config` after `key` was set; it names the file and every one of `words`.
void refused(json config, const char* key, const json& value, std::initializer_list<const char*> words) {
  if (key != nullptr) config[key] = value;
  const auto spec = parse_spec(config.dump(), "folder/config.json");
  CAPTURE(config.dump());
  REQUIRE_FALSE(spec.ok());
  const std::string message = spec.status().message;
  CAPTURE(message);
  CHECK(message.find("folder/config.json") != message.npos);
  for (const char* word : words) CHECK_MESSAGE(message.find(word) != message.npos, word);
}

TEST_CASE("the embedded llama model is described in full") {
  const auto read = read_spec(fs::path(TESSERA_SOURCE_DIR) / "models/tessera-dense");
  INFO(read.status().message);
  REQUIRE(read.ok());
  const DecoderSpec& spec = *read;
  CHECK(spec.family == "llama");
  CHECK(spec.vocab == 2048);
  CHECK(spec.hidden == 256);
  CHECK(spec.intermediate == 768);
  CHECK(spec.layers == 6);
  CHECK(spec.q_width() == 512);
  CHECK(spec.kv_width() == 128);
  CHECK(spec.max_context == 2048);
  CHECK(spec.rotary.dim == 64);
  CHECK(spec.rotary.theta == 10000.0);
  CHECK(spec.tied_embeddings);
  CHECK_FALSE(spec.qkv_bias);
  CHECK(spec.eos == std::vector<std::int32_t>{0, 2});
  CHECK(spec.bos == 0);
  CHECK(spec.attention_scale() == 0.125f);
}

TEST_CASE("each family sets its own biases and norms") {
  DecoderSpec spec = good(llama());
  CHECK(spec.head_dim == 32);
  CHECK(spec.rotary.theta == 5000.0);
  CHECK(spec.norm_eps == 1e-5f);
  CHECK_FALSE(spec.qkv_bias);
  CHECK_FALSE(spec.qk_norm);
  CHECK_FALSE(spec.tied_embeddings);

  json config = llama();
  config["attention_bias"] = config["mlp_bias"] = true;
  spec = good(config);
  CHECK(spec.qkv_bias);
  CHECK(spec.output_bias);
  CHECK(spec.mlp_bias);

  config = llama();
  config["model_type"] = "qwen2";
  config["architectures"] = {"Qwen2ForCausalLM"};
  config["use_sliding_window"] = false;
  config["sliding_window"] = 4096;
  spec = good(config);
  CHECK(spec.qkv_bias);
  CHECK_FALSE(spec.output_bias);
  CHECK_FALSE(spec.qk_norm);

  config["model_type"] = "qwen3";
  config["architectures"] = {"Qwen3ForCausalLM"};
  refused(config, nullptr, nullptr, {"head_dim"});
  config["head_dim"] = 64;
  config["layer_types"] = {"full_attention", "full_attention", "full_attention"};
  spec = good(config);
  CHECK(spec.qk_norm);
  CHECK_FALSE(spec.qkv_bias);
  CHECK(spec.q_width() == 256);
}

TEST_CASE("absent keys take the defaults of the format") {
  json config = llama();
  for (const char* key : {"rope_theta", "num_key_value_heads", "eos_token_id", "bos_token_id", "architectures"})
    config.erase(key);
  config["rope_scaling"] = nullptr;
  const DecoderSpec spec = good(config);
  CHECK(spec.rotary.theta == 10000.0);
  CHECK(spec.kv_heads == 4);
  CHECK(spec.eos.empty());
  CHECK(spec.bos == -1);
}

TEST_CASE("rotary parameters are read from the old and the new place") {
  json config = llama();
  config["rope_scaling"] = {{"type", "default"}};
  CHECK(good(config).rotary.theta == 5000.0);
  config["rope_parameters"] = {{"rope_type", "default"}, {"rope_theta", 1e6}};
  config.erase("rope_theta");
  CHECK(good(config).rotary.theta == 1e6);
  refused(llama(), "rope_scaling", {{"rope_type", "llama3"}, {"factor", 8.0}}, {"rope_scaling", "llama3", "default"});
  refused(llama(), "rope_scaling", {{"type", "linear"}}, {"rope_scaling", "linear"});
  refused(llama(), "rope_parameters", {{"rope_type", "yarn"}}, {"rope_parameters", "yarn"});
  refused(llama(), "rope_parameters", {{"full_attention", {{"rope_theta", 1e6}}}}, {"full_attention"});
  refused(llama(), "rope_scaling", "linear", {"rope_scaling", "object"});
  refused(llama(), "rope_theta", -1, {"rope_theta", "-1"});
  refused(llama(), "partial_rotary_factor", 0.5, {"partial_rotary_factor", "0.5"});
}

TEST_CASE("what no kernel serves is refused by name") {
  refused(llama(), "model_type", "mamba", {"mamba", "llama, qwen2, qwen3"});
  refused(llama(), "model_type", 7, {"model_type"});
  refused(llama(), "architectures", {"LlamaForSequenceClassification"},
          {"LlamaForSequenceClassification", "LlamaForCausalLM"});
  refused(llama(), "hidden_act", "gelu", {"hidden_act", "gelu", "silu"});
  refused(llama(), "use_sliding_window", true, {"use_sliding_window"});
  refused(llama(), "layer_types", {"full_attention", "sliding_attention"}, {"layer_types", "sliding"});
  refused(llama(), "quantization_config", {{"quant_method", "gptq"}}, {"quantization_config"});
}

TEST_CASE("absurd and inconsistent sizes are refused by name") {
  for (const char* key : {"vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
                          "num_key_value_heads", "max_position_embeddings", "head_dim"}) {
    for (const json& value : {json(0), json(-1), json(1 << 30), json(std::uint64_t{0} - 1), json(1.5), json("8"),
                              json(true), json::array({1})})
      refused(llama(), key, value, {key});
  }
  for (const char* key : {"vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
                          "max_position_embeddings"})
    refused(llama(), key, nullptr, {key});
  refused(llama(), "num_key_value_heads", 3, {"num_key_value_heads", "3", "4"});
  refused(llama(), "num_attention_heads", 3, {"hidden_size", "128", "3"});
  refused(llama(), "num_attention_heads", 256, {"hidden_size"});
  refused(llama(), "head_dim", 33, {"33", "head_dim must be a multiple of 32"});
  refused(llama(), "num_attention_heads", 8, {"16", "head_dim must be a multiple of 32"});
  refused(llama(), "rms_norm_eps", "small", {"rms_norm_eps"});
  refused(llama(), "tie_word_embeddings", 1, {"tie_word_embeddings"});
  refused(llama(), "bos_token_id", 100, {"bos_token_id", "100"});
}

TEST_CASE("end tokens are a number, a list or null, and within the vocabulary") {
  json config = llama();
  config["eos_token_id"] = {7, 3, 7};
  CHECK(good(config).eos == std::vector<std::int32_t>{7, 3});
  config["eos_token_id"] = nullptr;
  CHECK(good(config).eos.empty());
  for (const json& value : {json(-1), json(100), json("2"), json({1, nullptr}), json(std::uint64_t{0} - 1), json(2.0)})
    refused(llama(), "eos_token_id", value, {"eos_token_id"});
}

TEST_CASE("the end tokens of generation_config.json are merged in") {
  const fs::path folder = fs::temp_directory_path() / ("tessera_spec_" + std::to_string(getpid()));
  fs::create_directories(folder);
  const auto write = [&](const char* name, const std::string& text) { std::ofstream(folder / name) << text; };
  auto missing = read_spec(folder);
  REQUIRE_FALSE(missing.ok());
  CHECK(missing.status().code == Code::not_found);
  write("config.json", llama().dump());
  write("generation_config.json", R"({"eos_token_id": [5, 2]})");
  auto spec = read_spec(folder);
  REQUIRE(spec.ok());
  CHECK(spec->eos == std::vector<std::int32_t>{2, 5});
  for (const char* text : {"[]", "{", R"({"eos_token_id": 100})"}) {
    write("generation_config.json", text);
    spec = read_spec(folder);
    REQUIRE_FALSE(spec.ok());
    CHECK(std::string(spec.status().message).find("generation_config.json") != std::string::npos);
  }
  fs::remove_all(folder);
}

TEST_CASE("parameters are counted by what the checkpoint holds") {
  const auto dense = read_spec(fs::path(TESSERA_SOURCE_DIR) / "models/tessera-dense");
  REQUIRE(dense.ok());
  const std::int64_t layer = 256 * (512 + 128 + 128) + 512 * 256 + 3 * 256 * 768 + 2 * 256;
  CHECK(dense->parameters() == 6 * layer + 2048 * 256 + 256);

  json config = llama();
  const std::int64_t plain = good(config).parameters();
  CHECK(plain == 3 * (128 * (128 + 64 + 64) + 128 * 128 + 3 * 128 * 160 + 2 * 128) + 2 * 100 * 128 + 128);
  config["attention_bias"] = true;
  CHECK(good(config).parameters() == plain + 3 * (128 + 64 + 64 + 128));
  config["mlp_bias"] = true;
  CHECK(good(config).parameters() == plain + 3 * (128 + 64 + 64 + 128 + 160 + 160 + 128));
  config["tie_word_embeddings"] = true;
  CHECK(good(config).parameters() == plain + 3 * (128 + 64 + 64 + 128 + 160 + 160 + 128) - 100 * 128);
}

TEST_CASE("weights go by their published names") {
  const DecoderSpec spec = good(llama());
  CHECK(tensor_name(spec, TensorName::embedding) == "model.embed_tokens.weight");
  CHECK(tensor_name(spec, TensorName::final_norm) == "model.norm.weight");
  CHECK(tensor_name(spec, TensorName::lm_head) == "lm_head.weight");
  CHECK(tensor_name(spec, TensorName::q, 0) == "model.layers.0.self_attn.q_proj.weight");
  CHECK(tensor_name(spec, TensorName::o_bias, 11) == "model.layers.11.self_attn.o_proj.bias");
  CHECK(tensor_name(spec, TensorName::k_norm, 2) == "model.layers.2.self_attn.k_norm.weight");
  CHECK(tensor_name(spec, TensorName::attn_norm, 1) == "model.layers.1.input_layernorm.weight");
  CHECK(tensor_name(spec, TensorName::mlp_norm, 1) == "model.layers.1.post_attention_layernorm.weight");
  CHECK(tensor_name(spec, TensorName::down, 3) == "model.layers.3.mlp.down_proj.weight");
}

TEST_CASE("an Ouro config is a looped decoder with sandwich norms and an exit gate") {
  nlohmann::json json = llama();
  json["model_type"] = "ouro";
  json["architectures"] = {"OuroForCausalLM"};
  json["total_ut_steps"] = 4;
  json["early_exit_threshold"] = 0.8;
  const auto spec = parse_spec(json.dump(), "c");
  REQUIRE_MESSAGE(spec.ok(), spec.status().message);
  CHECK(spec->loops == 4);
  CHECK(spec->exit_gate);
  CHECK(spec->norms == NormPlacement::sandwich);
  CHECK(spec->exit_threshold == 0.8f);
  json["early_exit_step"] = 2;
  CHECK(std::string(parse_spec(json.dump(), "c").status().message).find("early_exit_step is not served") !=
        std::string::npos);
  json.erase("early_exit_step");
  json["total_ut_steps"] = 17;
  CHECK(std::string(parse_spec(json.dump(), "c").status().message).find("wanted a whole number from 1 to 16") !=
        std::string::npos);
}

TEST_CASE("damaged configs are refused with a sentence, never a crash") {
  for (const std::string text : {"", "null", "[]", "{", "\xff\xfe", "{\"model_type\": \"llama\"}"})
    CHECK_FALSE(parse_spec(text, "c").ok());
  const std::string deep(100000, '[');
  const auto nested =
      parse_spec(R"({"model_type": "llama", "vocab_size": )" + deep + std::string(100000, ']') + "}", "c");
  REQUIRE_FALSE(nested.ok());
  CHECK(std::string(nested.status().message).find("vocab_size is a list") != std::string::npos);

  const std::uint64_t seed = 20261;
  CAPTURE(seed);
  Random random(seed);
  const std::string whole = llama().dump();
  for (int round = 0; round < 3000; ++round) {
    std::string text = whole;
    for (std::uint32_t edits = 1 + random.below(4); edits > 0; --edits)
      text[random.below(static_cast<std::uint32_t>(text.size()))] = static_cast<char>(random.below(256));
    const auto spec = parse_spec(text, "c");
    if (!spec.ok()) {
      CHECK(spec.status().message[0] != '\0');
      continue;
    }
    CHECK(spec->head_dim % 32 == 0);
    CHECK(spec->q_heads % spec->kv_heads == 0);
    CHECK(spec->parameters() > 0);
  }
}

}  // namespace
}  // namespace tessera
