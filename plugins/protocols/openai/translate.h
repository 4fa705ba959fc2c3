// The pure half of the OpenAI adapter: bodies to requests, engine events to JSON and SSE. No sockets, no engine.
#pragma once
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/sdk/frontend.h"

namespace tessera::openai {

using OrderedJson = nlohmann::ordered_json;

/// An error as the client will see it. Empty `param` and `code` become null.
struct Refusal {
  int status = 400;
  std::string message;
  std::string type = "invalid_request_error";
  std::string param;
  std::string code;
};

std::string error_body(const Refusal& refusal);
/// What a failed submit or a failed event means over HTTP.
Refusal refusal_of(const sdk::Status& status);

enum class Endpoint { completions, chat };

/// One request, owning everything its view points to.
struct Call {
  struct Message {
    std::string role;
    std::string content;
  };
  Endpoint endpoint = Endpoint::chat;
  std::string model;  // "" when the client named none
  sdk::PromptKind prompt_kind = sdk::PromptKind::text;
  std::vector<Message> messages;
  std::string prompt;
  std::vector<std::int32_t> tokens;
  std::vector<std::string> stops;
  std::vector<sdk::LogitBias> logit_bias;
  sdk::SamplingView sampling;  // its logit_bias span is set by view()
  std::int32_t max_tokens = 0;
  std::int32_t num_choices = 1;
  std::int32_t top_logprobs = -1;
  bool ignore_eos = false;
  std::int32_t max_loops = 0, min_loops = 1;
  double exit_threshold = -1;
  bool stream = false;
  bool include_usage = false;
  bool echo = false;

  /// Valid while the Call lives and is not changed or moved.
  sdk::RequestView view();

 private:
  std::vector<sdk::MessageView> message_views_;
  std::vector<std::string_view> stop_views_;
};

inline constexpr int kMaxNesting = 64;
inline constexpr std::size_t kMaxStops = 16;

/// Fills `call`, or says what is wrong with the body. Never throws on any bytes, short of running out of memory.
std::optional<Refusal> parse_call(Endpoint endpoint, std::string_view body, Call& call);

/// Owned copies of the engine's event views.
struct Token {
  std::int32_t id = 0;
  float logprob = 0;
  std::string bytes;
};
struct TokenRow {
  Token chosen;
  std::vector<Token> top;
};
struct Event {
  sdk::EventKind kind = sdk::EventKind::started;
  std::int32_t choice = 0;
  std::string text;
  std::vector<TokenRow> tokens;
  sdk::FinishReason finish = sdk::FinishReason::none;
  sdk::Usage usage;
  std::uint64_t seed = 0;
  sdk::Status status;
};
/// Token rows are copied only when somebody will read them.
Event copy_event(const sdk::EventView& view, bool with_tokens);

/// What every object of one answer says about itself.
struct Heading {
  std::string id;  // "chatcmpl-..." or "cmpl-..."
  std::int64_t created = 0;
  std::string model;
  std::string system_fingerprint;
};

/// Collects the events of a request that is answered at once.
class WholeAnswer {
 public:
  explicit WholeAnswer(const Call& call);
  void add(const Event& event);
  /// After `finished`.
  std::string body(const Heading& heading) const;

 private:
  struct Choice {
    std::string text;
    std::vector<TokenRow> tokens;
    sdk::FinishReason finish = sdk::FinishReason::none;
  };
  const Call& call_;
  std::vector<Choice> choices_;
  sdk::Usage usage_;
  std::uint64_t seed_ = 0;
};

/// Turns events into SSE bytes. For each choice: role (chat), deltas, finish; then usage if asked for, then [DONE].
/// A failure is one error event with no [DONE] after it; nothing follows a terminal event.
class StreamAnswer {
 public:
  StreamAnswer(const Call& call, Heading heading);
  std::string on(const Event& event);

 private:
  struct Choice {
    bool opened = false;
    bool closed = false;
    std::int64_t offset = 0;  // code points of completion text before the next token
  };
  std::string open(std::int32_t index);
  std::string chunk(std::int32_t index, std::string_view text, bool with_role, const std::vector<TokenRow>& tokens,
                    sdk::FinishReason finish);
  OrderedJson base() const;

  const Call& call_;
  Heading heading_;
  std::vector<Choice> choices_;
  bool ended_ = false;
};

std::string model_body(const sdk::EngineInfo& info);
std::string models_body(const sdk::EngineInfo& info);
/// "%2F" and the like undone; malformed escapes stay as they are.
std::string percent_decoded(std::string_view text);

}  // namespace tessera::openai
