// Engine events to JSON and SSE, and the shapes of errors and models.
#include <algorithm>
#include <array>
#include <cmath>

#include "translate.h"

namespace tessera::openai {
namespace {

std::string dump(const OrderedJson& json) {
  return json.dump(-1, ' ', false, OrderedJson::error_handler_t::replace);  // token bytes may be half a character
}

std::string sse(const OrderedJson& json) { return "data: " + dump(json) + "\n\n"; }

OrderedJson finish_name(sdk::FinishReason finish) {
  switch (finish) {
    case sdk::FinishReason::stop: return "stop";
    case sdk::FinishReason::length: return "length";
    case sdk::FinishReason::none: return nullptr;
    case sdk::FinishReason::cancelled:
    case sdk::FinishReason::error: return "error";
  }
  return nullptr;
}

/// JSON has no -inf: a token the model rules out is given as -9999, as other servers do.
double finite(float logprob) { return std::isfinite(logprob) ? static_cast<double>(logprob) : -9999.0; }

std::int64_t code_points(std::string_view text) {
  return std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; });
}

OrderedJson chat_token(const Token& token) {
  OrderedJson bytes = OrderedJson::array();
  for (const char c : token.bytes) bytes.push_back(static_cast<unsigned char>(c));
  return {{"token", token.bytes}, {"logprob", finite(token.logprob)}, {"bytes", std::move(bytes)}};
}

OrderedJson chat_logprobs(const std::vector<TokenRow>& rows) {
  OrderedJson content = OrderedJson::array();
  for (const TokenRow& row : rows) {
    OrderedJson entry = chat_token(row.chosen);
    entry["top_logprobs"] = OrderedJson::array();
    for (const Token& token : row.top) entry["top_logprobs"].push_back(chat_token(token));
    content.push_back(std::move(entry));
  }
  return {{"content", std::move(content)}, {"refusal", nullptr}};
}

/// Whole UTF-8 as it is; anything else spelled out, so that different tokens stay different keys.
std::string completion_token(const std::string& bytes) {
  try {
    (void)OrderedJson(bytes).dump();
    return bytes;
  } catch (const OrderedJson::type_error&) {
    constexpr std::string_view kHex = "0123456789abcdef";
    std::string text = "bytes:";
    for (const char c : bytes) {
      const auto byte = static_cast<unsigned char>(c);
      text += {'\\', 'x', kHex[byte >> 4], kHex[byte & 15]};
    }
    return text;
  }
}

/// `offset` advances by the tokens' code points.
OrderedJson completion_logprobs(const std::vector<TokenRow>& rows, std::int64_t& offset) {
  OrderedJson tokens = OrderedJson::array(), chosen = tokens, best = tokens, offsets = tokens;
  for (const TokenRow& row : rows) {
    tokens.push_back(completion_token(row.chosen.bytes));
    chosen.push_back(finite(row.chosen.logprob));
    OrderedJson top = OrderedJson::object();
    for (const Token& token : row.top) top[completion_token(token.bytes)] = finite(token.logprob);
    best.push_back(std::move(top));
    offsets.push_back(offset);
    offset += code_points(row.chosen.bytes);
  }
  return {{"tokens", std::move(tokens)},
          {"token_logprobs", std::move(chosen)},
          {"top_logprobs", std::move(best)},
          {"text_offset", std::move(offsets)}};
}

OrderedJson usage_json(const sdk::Usage& usage) {
  return {{"prompt_tokens", usage.prompt_tokens},
          {"completion_tokens", usage.completion_tokens},
          {"total_tokens", usage.prompt_tokens + usage.completion_tokens},
          {"prompt_tokens_details", {{"cached_tokens", usage.cached_tokens}}}};
}

OrderedJson heading_json(const Heading& heading, const char* object) {
  return {{"id", heading.id},
          {"object", object},
          {"created", heading.created},
          {"model", heading.model},
          {"system_fingerprint", heading.system_fingerprint}};
}

Token copy_token(const sdk::TokenProb& token) { return {token.token, token.logprob, std::string(token.bytes)}; }

OrderedJson error_json(const Refusal& refusal) {
  const auto or_null = [](const std::string& text) { return text.empty() ? OrderedJson() : OrderedJson(text); };
  return {{"error",
           {{"message", refusal.message},
            {"type", refusal.type},
            {"param", or_null(refusal.param)},
            {"code", or_null(refusal.code)}}}};
}

/// The engine's sentences start with the parameter they are about.
std::string param_of(std::string_view message) {
  constexpr std::array<std::string_view, 15> kNames = {"temperature",
                                                       "top_p",
                                                       "min_p",
                                                       "presence_penalty",
                                                       "frequency_penalty",
                                                       "repetition_penalty",
                                                       "top_k",
                                                       "n",
                                                       "max_tokens",
                                                       "top_logprobs",
                                                       "stop",
                                                       "logit_bias",
                                                       "max_loops",
                                                       "min_loops",
                                                       "exit_threshold"};
  const std::string_view word = message.substr(0, message.find(' '));
  return std::find(kNames.begin(), kNames.end(), word) == kNames.end() ? "" : std::string(word);
}

OrderedJson model_json(const sdk::EngineInfo& info) {
  return {{"id", info.model_name},
          {"object", "model"},
          {"created", info.created},
          {"owned_by", "tessera"},
          {"max_model_len", info.max_context}};
}

}  // namespace

std::string error_body(const Refusal& refusal) { return dump(error_json(refusal)); }

Refusal refusal_of(const sdk::Status& status) {
  Refusal refusal;
  refusal.message = status.message;
  switch (status.code) {
    case sdk::Code::ok:
    case sdk::Code::invalid_argument:
    case sdk::Code::unsupported:
    case sdk::Code::not_found:
      refusal.param = param_of(refusal.message);
      if (refusal.message.find("context") != std::string::npos) refusal.code = "context_length_exceeded";
      break;
    case sdk::Code::resource_exhausted:
      refusal.status = 429;
      refusal.type = "rate_limit_error";
      refusal.code = "rate_limit_exceeded";
      break;
    case sdk::Code::unavailable:
    case sdk::Code::cancelled:
      refusal.status = 503;
      refusal.type = "server_error";
      refusal.code = "service_unavailable";
      break;
    case sdk::Code::internal:
      refusal.status = 500;
      refusal.type = "server_error";
      refusal.code = "internal_error";
      break;
  }
  return refusal;
}

Event copy_event(const sdk::EventView& view, bool with_tokens) {
  Event event;
  event.kind = view.kind;
  event.choice = view.choice;
  event.text = view.text;
  event.finish = view.finish;
  event.usage = view.usage;
  event.seed = view.seed;
  if (view.status != nullptr) event.status = *view.status;
  if (!with_tokens) return event;
  for (const sdk::TokenView& token : view.tokens) {
    TokenRow& row = event.tokens.emplace_back();
    row.chosen = copy_token(token.chosen);
    for (const sdk::TokenProb& top : token.top) row.top.push_back(copy_token(top));
  }
  return event;
}

WholeAnswer::WholeAnswer(const Call& call) : call_(call), choices_(static_cast<std::size_t>(call.num_choices)) {
  if (call.echo)
    for (Choice& choice : choices_) choice.text = call.prompt;
}

void WholeAnswer::add(const Event& event) {
  const auto index = static_cast<std::size_t>(event.choice);
  if (event.kind == sdk::EventKind::delta && index < choices_.size()) {
    choices_[index].text += event.text;
    choices_[index].tokens.insert(choices_[index].tokens.end(), event.tokens.begin(), event.tokens.end());
  } else if (event.kind == sdk::EventKind::choice_done && index < choices_.size()) {
    choices_[index].text += event.text;
    choices_[index].tokens.insert(choices_[index].tokens.end(), event.tokens.begin(), event.tokens.end());
    choices_[index].finish = event.finish;
  } else if (event.kind == sdk::EventKind::finished) {
    usage_ = event.usage;
    seed_ = event.seed;
  }
}

std::string WholeAnswer::body(const Heading& heading) const {
  const bool chat = call_.endpoint == Endpoint::chat;
  OrderedJson out = heading_json(heading, chat ? "chat.completion" : "text_completion");
  out["choices"] = OrderedJson::array();
  for (std::size_t i = 0; i < choices_.size(); ++i) {
    const Choice& choice = choices_[i];
    OrderedJson entry = {{"index", i}};
    if (chat) {
      entry["message"] = {{"role", "assistant"}, {"content", choice.text}, {"refusal", nullptr}};
    } else {
      entry["text"] = choice.text;
    }
    std::int64_t offset = 0;
    entry["logprobs"] = call_.top_logprobs < 0 ? OrderedJson()
                        : chat                 ? chat_logprobs(choice.tokens)
                                               : completion_logprobs(choice.tokens, offset);
    entry["finish_reason"] = finish_name(choice.finish);
    out["choices"].push_back(std::move(entry));
  }
  out["usage"] = usage_json(usage_);
  out["seed"] = seed_;  // so that an unseeded answer can be asked for again
  return dump(out);
}

StreamAnswer::StreamAnswer(const Call& call, Heading heading)
    : call_(call), heading_(std::move(heading)), choices_(static_cast<std::size_t>(call.num_choices)) {}

OrderedJson StreamAnswer::base() const {
  OrderedJson out =
      heading_json(heading_, call_.endpoint == Endpoint::chat ? "chat.completion.chunk" : "text_completion");
  out["choices"] = OrderedJson::array();
  if (call_.include_usage) out["usage"] = nullptr;
  return out;
}

std::string StreamAnswer::chunk(std::int32_t index, std::string_view text, bool with_role,
                                const std::vector<TokenRow>& tokens, sdk::FinishReason finish) {
  const bool chat = call_.endpoint == Endpoint::chat;
  Choice& choice = choices_[static_cast<std::size_t>(index)];
  OrderedJson entry = {{"index", index}};
  if (chat) {
    OrderedJson delta = OrderedJson::object();
    if (with_role) delta["role"] = "assistant";
    if (with_role || !text.empty() || !tokens.empty()) delta["content"] = text;
    entry["delta"] = std::move(delta);
  } else {
    entry["text"] = text;
  }
  entry["logprobs"] = call_.top_logprobs < 0 || tokens.empty() ? OrderedJson()
                      : chat                                   ? chat_logprobs(tokens)
                                                               : completion_logprobs(tokens, choice.offset);
  entry["finish_reason"] = finish_name(finish);
  OrderedJson out = base();
  out["choices"].push_back(std::move(entry));
  return sse(out);
}

std::string StreamAnswer::open(std::int32_t index) {
  Choice& choice = choices_[static_cast<std::size_t>(index)];
  if (choice.opened) return "";
  choice.opened = true;
  if (call_.endpoint == Endpoint::chat) return chunk(index, "", true, {}, sdk::FinishReason::none);
  return call_.echo ? chunk(index, call_.prompt, false, {}, sdk::FinishReason::none) : "";
}

std::string StreamAnswer::on(const Event& event) {
  if (ended_ || event.choice < 0 || event.choice >= call_.num_choices) return "";
  Choice& choice = choices_[static_cast<std::size_t>(event.choice)];
  std::string out;
  switch (event.kind) {
    case sdk::EventKind::started:
      for (std::int32_t i = 0; i < call_.num_choices; ++i) out += open(i);
      return out;
    case sdk::EventKind::delta:
      if (choice.closed) return "";
      out = open(event.choice);
      if (!event.text.empty() || (call_.top_logprobs >= 0 && !event.tokens.empty()))
        out += chunk(event.choice, event.text, false, event.tokens, sdk::FinishReason::none);
      return out;
    case sdk::EventKind::choice_done:
      if (choice.closed) return "";
      out = open(event.choice);
      choice.closed = true;
      return out + chunk(event.choice, event.text, false, event.tokens, event.finish);
    case sdk::EventKind::finished:
      ended_ = true;
      if (call_.include_usage) {
        OrderedJson last = base();
        last["usage"] = usage_json(event.usage);
        last["seed"] = event.seed;
        out = sse(last);
      }
      return out + "data: [DONE]\n\n";
    case sdk::EventKind::failed: ended_ = true; return sse(error_json(refusal_of(event.status)));
    case sdk::EventKind::cancelled:
      ended_ = true;
      return sse(error_json(refusal_of(sdk::fail(sdk::Code::cancelled, "the request was cancelled by the server"))));
  }
  return out;
}

std::string model_body(const sdk::EngineInfo& info) { return dump(model_json(info)); }

std::string models_body(const sdk::EngineInfo& info) {
  return dump({{"object", "list"}, {"data", OrderedJson::array({model_json(info)})}});
}

std::string percent_decoded(std::string_view text) {
  const auto digit = [](char c) {
    return c >= '0' && c <= '9' ? c - '0' : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10 : -1;
  };
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const int high = text[i] == '%' && i + 2 < text.size() ? digit(text[i + 1]) : -1;
    const int low = high >= 0 ? digit(text[i + 2]) : -1;
    if (low >= 0) i += 2;
    out += low >= 0 ? static_cast<char>(high * 16 + low) : text[i];
  }
  return out;
}

}  // namespace tessera::openai
