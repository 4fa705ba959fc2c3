// Bodies to requests.
#include "translate.h"

#include <array>
#include <limits>
#include <set>

namespace tessera::openai {
namespace {

using Json = nlohmann::json;

/// Thrown inside this file only; parse_call turns it into its result.
struct Refused {
  Refusal refusal;
};

[[noreturn]] void refuse(std::string param, std::string message) {
  Refusal refusal;
  refusal.param = std::move(param);
  refusal.message = std::move(message);
  throw Refused{std::move(refusal)};
}

std::string found(const Json& value) {
  switch (value.type()) {
    case Json::value_t::null: return "null";
    case Json::value_t::object: return "an object";
    case Json::value_t::array: return "an array";
    case Json::value_t::string: {
      const auto& text = value.get_ref<const std::string&>();
      return text.size() <= 40 ? "the string " + value.dump() : "a string";
    }
    case Json::value_t::boolean:
    case Json::value_t::number_integer:
    case Json::value_t::number_unsigned:
    case Json::value_t::number_float: return value.dump();
    default: return "something else";
  }
}

[[noreturn]] void refuse_type(const std::string& param, const Json& value, std::string_view wanted) {
  refuse(param, "'" + param + "' is " + found(value) + "; wanted " + std::string(wanted));
}

/// Syntax, UTF-8, nesting and repeated keys, before any tree is built.
class Scanner : public nlohmann::json_sax<Json> {
 public:
  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t, const string_t&) override { return true; }
  bool string(string_t&) override { return true; }
  bool binary(binary_t&) override { return true; }
  bool start_object(std::size_t) override {
    keys_.emplace_back();
    return deeper();
  }
  bool key(string_t& name) override {
    if (!keys_.back().insert(name).second)
      refuse(name.size() <= 40 ? name : "", "the body gives the key " + found(Json(name)) + " twice; give it once");
    return true;
  }
  bool end_object() override {
    keys_.pop_back();
    --depth_;
    return true;
  }
  bool start_array(std::size_t) override { return deeper(); }
  bool end_array() override {
    --depth_;
    return true;
  }
  bool parse_error(std::size_t position, const std::string&, const nlohmann::detail::exception&) override {
    refuse("", "the body is not valid JSON in UTF-8: reading failed at byte " + std::to_string(position));
  }

 private:
  bool deeper() {
    if (++depth_ > kMaxNesting)
      refuse("", "the body nests deeper than " + std::to_string(kMaxNesting) + " levels; flatten it");
    return true;
  }
  int depth_ = 0;
  std::vector<std::set<std::string>> keys_;
};

/// The members of one object; null counts as absent.
class Fields {
 public:
  Fields(const Json& object, std::string prefix) : object_(object), prefix_(std::move(prefix)) {}

  const Json* get(const char* key) const {
    const auto it = object_.find(key);
    return it == object_.end() || it->is_null() ? nullptr : &*it;
  }
  std::string name(const char* key) const { return prefix_ + key; }

  void real(const char* key, double& out) const {
    const Json* value = get(key);
    if (value == nullptr) return;
    if (!value->is_number()) refuse_type(name(key), *value, "a number");
    out = value->get<double>();
  }
  /// True when the key was there.
  bool integer(const char* key, std::int32_t low, std::int32_t high, std::int32_t& out) const {
    const Json* value = get(key);
    if (value == nullptr) return false;
    const bool fits = value->is_number_unsigned()
                          ? value->get<std::uint64_t>() <= static_cast<std::uint64_t>(INT32_MAX)
                          : value->is_number_integer() && value->get<std::int64_t>() >= INT32_MIN;
    if (!fits || value->get<std::int32_t>() < low || value->get<std::int32_t>() > high)
      refuse_type(name(key), *value,
                  high == INT32_MAX ? "an integer of " + std::to_string(low) + " or more"
                                    : "an integer from " + std::to_string(low) + " to " + std::to_string(high));
    out = value->get<std::int32_t>();
    return true;
  }
  void flag(const char* key, bool& out) const {
    const Json* value = get(key);
    if (value == nullptr) return;
    if (!value->is_boolean()) refuse_type(name(key), *value, "true or false");
    out = value->get<bool>();
  }
  void text(const char* key, std::string& out) const {
    const Json* value = get(key);
    if (value == nullptr) return;
    if (!value->is_string()) refuse_type(name(key), *value, "a string");
    out = value->get<std::string>();
  }

 private:
  const Json& object_;
  std::string prefix_;
};

std::string content_text(const Json& content, const std::string& param) {
  if (content.is_string()) return content.get<std::string>();
  if (!content.is_array()) refuse_type(param, content, "a string or an array of text parts");
  std::string text;
  for (std::size_t i = 0; i < content.size(); ++i) {
    const std::string part = param + "[" + std::to_string(i) + "]";
    if (!content[i].is_object()) refuse_type(part, content[i], R"(an object like {"type":"text","text":"..."})");
    const Json type = content[i].value("type", Json());
    if (type != "text")
      refuse(part + ".type", "'" + part + ".type' is " + found(type) + "; this model takes \"text\" only");
    const Json piece = content[i].value("text", Json());
    if (!piece.is_string()) refuse_type(part + ".text", piece, "a string");
    text += piece.get_ref<const std::string&>();
  }
  return text;
}

void parse_messages(const Fields& fields, Call& call) {
  const Json* messages = fields.get("messages");
  if (messages == nullptr) refuse("messages", "'messages' is missing; wanted an array of at least one message");
  if (!messages->is_array() || messages->empty()) {
    if (messages->is_array()) refuse("messages", "'messages' is empty; wanted at least one message");
    refuse_type("messages", *messages, "an array of messages");
  }
  call.prompt_kind = sdk::PromptKind::messages;
  for (std::size_t i = 0; i < messages->size(); ++i) {
    const Json& message = (*messages)[i];
    const std::string param = "messages[" + std::to_string(i) + "]";
    if (!message.is_object()) refuse_type(param, message, "an object with role and content");
    const Json role = message.value("role", Json());
    if (role != "system" && role != "user" && role != "assistant" && role != "developer")
      refuse_type(param + ".role", role, "\"system\", \"developer\", \"user\" or \"assistant\"");
    std::string role_name = role.get<std::string>();
    if (role_name == "developer") role_name = "system";
    call.messages.push_back({std::move(role_name), content_text(message.value("content", Json()), param + ".content")});
  }
}

void parse_prompt(const Fields& fields, Call& call) {
  const Json* prompt = fields.get("prompt");
  if (prompt == nullptr) refuse("prompt", "'prompt' is missing; wanted a string or an array of token ids");
  if (prompt->is_array() && prompt->size() == 1 && !prompt->front().is_number()) prompt = &prompt->front();
  if (prompt->is_string()) {
    call.prompt = prompt->get<std::string>();
    return;
  }
  if (!prompt->is_array() || prompt->empty()) refuse_type("prompt", *prompt, "a string or an array of token ids");
  if (prompt->front().is_string() || prompt->front().is_array())
    refuse("prompt", "'prompt' has " + std::to_string(prompt->size()) + " prompts; wanted one: send the others apart");
  call.prompt_kind = sdk::PromptKind::tokens;
  call.tokens.reserve(prompt->size());
  for (const Json& token : *prompt) {
    if (!token.is_number_unsigned() || token.get<std::uint64_t>() > static_cast<std::uint64_t>(INT32_MAX))
      refuse("prompt", "'prompt' holds " + found(token) + "; wanted token ids only");
    call.tokens.push_back(token.get<std::int32_t>());
  }
}

void parse_stops(const Fields& fields, Call& call) {
  const Json* stop = fields.get("stop");
  if (stop == nullptr) return;
  if (stop->is_string()) {
    call.stops.push_back(stop->get<std::string>());
  } else if (stop->is_array()) {
    if (stop->size() > kMaxStops)
      refuse("stop",
             "'stop' has " + std::to_string(stop->size()) + " strings; wanted at most " + std::to_string(kMaxStops));
    for (const Json& text : *stop) {
      if (!text.is_string()) refuse("stop", "'stop' holds " + found(text) + "; wanted strings only");
      call.stops.push_back(text.get<std::string>());
    }
  } else {
    refuse_type("stop", *stop, "a string or an array of strings");
  }
  for (const std::string& text : call.stops)
    if (text.empty()) refuse("stop", "'stop' holds an empty string; wanted at least one character");
}

void parse_logit_bias(const Fields& fields, Call& call) {
  const Json* map = fields.get("logit_bias");
  if (map == nullptr) return;
  if (!map->is_object()) refuse_type("logit_bias", *map, "an object from token ids to numbers");
  for (const auto& [key, value] : map->items()) {
    const bool digits = !key.empty() && key.size() <= 9 && key.find_first_not_of("0123456789") == std::string::npos;
    if (!digits) refuse("logit_bias", "'logit_bias' has the key " + found(Json(key)) + "; wanted token ids");
    if (!value.is_number() || value.get<double>() < -100 || value.get<double>() > 100)
      refuse("logit_bias",
             "'logit_bias' gives token " + key + " " + found(value) + "; wanted a number from -100 to 100");
    call.logit_bias.push_back({static_cast<std::int32_t>(std::stol(key)), value.get<float>()});
  }
}

void parse_sampling(const Fields& fields, Call& call) {
  sdk::SamplingView& sampling = call.sampling;
  fields.real("temperature", sampling.temperature);
  fields.real("top_p", sampling.top_p);
  fields.real("min_p", sampling.min_p);
  fields.real("presence_penalty", sampling.presence_penalty);
  fields.real("frequency_penalty", sampling.frequency_penalty);
  fields.real("repetition_penalty", sampling.repetition_penalty);
  fields.integer("top_k", -1, INT32_MAX, sampling.top_k);
  if (sampling.top_k < 0) sampling.top_k = 0;  // -1 is the other common spelling of "off"
  parse_logit_bias(fields, call);
  if (const Json* seed = fields.get("seed")) {
    if (!seed->is_number_integer()) refuse_type("seed", *seed, "an integer of 64 bits");
    sampling.has_seed = true;
    sampling.seed =
        seed->is_number_unsigned() ? seed->get<std::uint64_t>() : static_cast<std::uint64_t>(seed->get<std::int64_t>());
  }
}

void parse_logprobs(const Fields& fields, Call& call) {
  if (call.endpoint == Endpoint::completions) {
    fields.integer("logprobs", 0, INT32_MAX, call.top_logprobs);
    return;
  }
  bool wanted = false;
  std::int32_t top = 0;
  fields.flag("logprobs", wanted);
  const bool has_top = fields.integer("top_logprobs", 0, INT32_MAX, top);
  if (has_top && top > 0 && !wanted)
    refuse("top_logprobs", "'top_logprobs' is " + std::to_string(top) + " without 'logprobs'; set logprobs to true");
  if (wanted) call.top_logprobs = top;
}

/// Wishes that change the answer and that nobody here could fulfil: refused, never ignored.
void refuse_unsupported(const Fields& fields) {
  constexpr std::array<const char*, 8> kNames = {"suffix", "tools",      "functions",          "function_call",
                                                 "audio",  "prediction", "web_search_options", "tool_choice"};
  for (const char* name : kNames) {
    const Json* value = fields.get(name);
    if (value == nullptr) continue;
    const bool harmless = (value->is_structured() && value->empty()) || *value == "" || *value == "none" ||
                          (*value == "auto" && fields.get("tools") == nullptr);
    if (!harmless) refuse(name, std::string("'") + name + "' is not supported by this server; leave it out");
  }
  if (const Json* format = fields.get("response_format")) {
    if (!format->is_object()) refuse_type("response_format", *format, R"(an object like {"type":"text"})");
    const Json type = format->value("type", Json());
    if (type != "text")
      refuse("response_format", "'response_format.type' is " + found(type) + "; this server gives \"text\" only");
  }
  if (const Json* modalities = fields.get("modalities"); modalities != nullptr && *modalities != Json::array({"text"}))
    refuse_type("modalities", *modalities, R"(["text"])");
  std::int32_t best_of = 1, choices = 1;
  fields.integer("n", 1, INT32_MAX, choices);
  if (fields.integer("best_of", 1, INT32_MAX, best_of) && best_of != choices)
    refuse("best_of", "'best_of' is " + std::to_string(best_of) + "; this server returns every choice it makes: use n");
}

void parse_lengths(const Fields& fields, Call& call) {
  const bool old_name = fields.integer("max_tokens", 1, INT32_MAX, call.max_tokens);
  std::int32_t other = 0;
  if (call.endpoint == Endpoint::chat && fields.integer("max_completion_tokens", 1, INT32_MAX, other)) {
    if (old_name && other != call.max_tokens)
      refuse("max_completion_tokens", "'max_completion_tokens' and 'max_tokens' differ; give one of them");
    call.max_tokens = other;
  }
  if (call.endpoint == Endpoint::completions && !old_name) call.max_tokens = 16;  // that API's documented default
  fields.integer("n", 1, INT32_MAX, call.num_choices);
}

/// Of looped models; the engine judges the values.
void parse_loops(const Fields& fields, Call& call) {
  fields.integer("max_loops", 0, INT32_MAX, call.max_loops);
  fields.integer("min_loops", 1, INT32_MAX, call.min_loops);
  fields.real("exit_threshold", call.exit_threshold);
}

void parse_streaming(const Fields& fields, Call& call) {
  fields.flag("stream", call.stream);
  const Json* options = fields.get("stream_options");
  if (options == nullptr) return;
  if (!options->is_object()) refuse_type("stream_options", *options, R"(an object like {"include_usage":true})");
  if (!call.stream) refuse("stream_options", "'stream_options' is given without 'stream'; set stream to true");
  Fields(*options, "stream_options.").flag("include_usage", call.include_usage);
}

void parse_object(const Json& body, Call& call) {
  if (!body.is_object()) refuse("", "the body is " + found(body) + "; wanted a JSON object");
  const Fields fields(body, "");
  refuse_unsupported(fields);
  fields.text("model", call.model);
  if (call.endpoint == Endpoint::chat) {
    parse_messages(fields, call);
  } else {
    parse_prompt(fields, call);
    fields.flag("echo", call.echo);
  }
  parse_sampling(fields, call);
  parse_stops(fields, call);
  parse_logprobs(fields, call);
  parse_lengths(fields, call);
  parse_streaming(fields, call);
  parse_loops(fields, call);
  fields.flag("ignore_eos", call.ignore_eos);
  if (call.echo && call.prompt_kind != sdk::PromptKind::text)
    refuse("echo", "'echo' is true with a prompt of token ids; give the prompt as text");
  if (call.echo && call.top_logprobs >= 0)
    refuse("echo", "'echo' is true with 'logprobs'; the prompt has no logprobs here: leave one of them out");
}

}  // namespace

sdk::RequestView Call::view() {
  message_views_.clear();
  for (const Message& message : messages) message_views_.push_back({message.role, message.content});
  stop_views_.assign(stops.begin(), stops.end());
  sampling.logit_bias = logit_bias;
  sdk::RequestView out;
  out.prompt_kind = prompt_kind;
  out.messages = message_views_;
  out.prompt = prompt;
  out.tokens = tokens;
  out.sampling = sampling;
  out.max_tokens = max_tokens;
  out.num_choices = num_choices;
  out.stops = stop_views_;
  out.top_logprobs = top_logprobs;
  out.ignore_eos = ignore_eos;
  out.max_loops = max_loops;
  out.min_loops = min_loops;
  out.exit_threshold = exit_threshold;
  return out;
}

std::optional<Refusal> parse_call(Endpoint endpoint, std::string_view body, Call& call) {
  try {
    Scanner scanner;
    Json::sax_parse(body, &scanner);
    call = Call();
    call.endpoint = endpoint;
    parse_object(Json::parse(body), call);
    return std::nullopt;
  } catch (Refused& refused) {
    return std::move(refused.refusal);
  } catch (const Json::exception& error) {
    Refusal refusal;
    refusal.message = error.what();
    return refusal;
  }
}

}  // namespace tessera::openai
