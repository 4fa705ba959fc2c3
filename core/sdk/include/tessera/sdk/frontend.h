// What a protocol adapter sees of the engine: submit, cancel, describe, metrics, and a stream of events.
#pragma once
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string_view>

#include "tessera/sdk/status.h"

namespace tessera::sdk {

struct MessageView {
  std::string_view role;     // "system", "user", "assistant"
  std::string_view content;  // UTF-8; special tokens in it stay text
};

struct LogitBias {
  std::int32_t token;
  float bias;
};

/// Applied in this order: logit bias, penalties, temperature, top-k, top-p, min-p, draw. temperature 0 is greedy.
struct SamplingView {
  double temperature = 1.0;         // 0 .. 100
  std::int32_t top_k = 0;           // 0 = off
  double top_p = 1.0;               // (0, 1]
  double min_p = 0.0;               // [0, 1)
  double presence_penalty = 0.0;    // -2 .. 2, over generated tokens
  double frequency_penalty = 0.0;   // -2 .. 2, over generated tokens
  double repetition_penalty = 1.0;  // > 0, over prompt and generated tokens
  std::span<const LogitBias> logit_bias;
  bool has_seed = false;  // without a seed the engine picks one and reports it
  std::uint64_t seed = 0;
};

/// Views are read during submit only. Exactly one of messages, prompt, tokens is given (`prompt_kind`).
enum class PromptKind : std::uint32_t { messages, text, tokens };
struct RequestView {
  PromptKind prompt_kind = PromptKind::text;
  std::span<const MessageView> messages;
  std::string_view prompt;
  std::span<const std::int32_t> tokens;
  SamplingView sampling;
  std::int32_t max_tokens = 0;  // 0 = up to the end of the context
  std::int32_t num_choices = 1;
  std::span<const std::string_view> stops;  // not part of the answer
  std::int32_t top_logprobs = -1;           // -1 = none; 0 = the chosen token's only; k = also the k best
  bool ignore_eos = false;
  // Looped models only; a plain one refuses anything but these values.
  std::int32_t max_loops = 0;  // loops of every row at most; 0 = all of the model's
  std::int32_t min_loops = 1;  // a decoded row leaves after these at the earliest
  double exit_threshold = -1;  // a decoded row leaves once its exit probability sums up to this; -1 = the model's
};

enum class FinishReason : std::uint32_t { none, stop, length, cancelled, error };

struct TokenProb {
  std::int32_t token;
  float logprob;           // of the model's own distribution, before any sampling parameter
  std::string_view bytes;  // of this token, perhaps not whole UTF-8
};

/// One generated token, whose text may still be held back (by a stop string or by incomplete UTF-8).
struct TokenView {
  TokenProb chosen;  // logprob is NaN unless logprobs were asked for
  std::span<const TokenProb> top;
};

struct Usage {
  std::int32_t prompt_tokens = 0;
  std::int32_t cached_tokens = 0;      // of the prompt, served by the prefix cache
  std::int32_t completion_tokens = 0;  // all choices together
};

enum class EventKind : std::uint32_t {
  started,      // left the queue (once)
  delta,        // text and/or tokens of one choice; valid UTF-8, and deltas concatenate to the whole answer
  choice_done,  // one choice is complete; `finish` says why
  finished,     // terminal: all choices are complete; usage is final
  failed,       // terminal: `status` says why
  cancelled,    // terminal
};

struct EventView {
  EventKind kind;
  std::int32_t choice = 0;
  std::string_view text;
  std::span<const TokenView> tokens;
  FinishReason finish = FinishReason::none;
  std::string_view stop_match;  // the stop string that ended the choice, if one did
  Usage usage;
  std::uint64_t seed = 0;
  const Status* status = nullptr;
};

/// Called on the engine thread, in order: copy and return, never block. Exactly one terminal event is delivered for
/// each accepted request; after it the engine never touches the sink again, and the sink must live until then.
class EventSink {
 public:
  virtual void on_event(const EventView& event) noexcept = 0;

 protected:
  ~EventSink() = default;
};

enum class EngineState : std::uint32_t { loading, ready, draining };

struct EngineInfo {
  EngineState state;
  const char* model_name;   // valid as long as the engine
  const char* fingerprint;  // hex; names everything an answer's bits depend on
  std::int64_t created;     // unix seconds
  std::int32_t max_context;
  std::int32_t vocab_size;
  std::int32_t max_choices;
  std::int32_t max_top_logprobs;
  std::int32_t loops;  // of a looped model; 1 for a plain one
};

/// Thread-safe. Lives longer than any adapter.
class Frontend {
 public:
  /// Refusals: invalid_argument (the request), resource_exhausted (the queue is full), unavailable (loading, draining).
  /// On success *ticket names this submission and no other, ever.
  virtual Status submit(const RequestView& request, EventSink& sink, std::uint64_t* ticket) noexcept = 0;
  /// Terminal in every state; idempotent; unknown tickets are ignored. Returns at once: the terminal event follows.
  virtual void cancel(std::uint64_t ticket) noexcept = 0;
  virtual EngineInfo describe() noexcept = 0;
  /// Prometheus text exposition; `write` may be called several times.
  virtual void metrics(void (*write)(void* context, std::string_view text), void* context) noexcept = 0;

 protected:
  ~Frontend() = default;
};

}  // namespace tessera::sdk
