#include "engine/validate.h"

#include <cmath>

namespace tessera {
namespace {

Status in_range(const char* name, double value, double low, double high) {
  if (std::isfinite(value) && value >= low && value <= high) return {};
  return fail(Code::invalid_argument, "{} is {}; wanted a number from {} to {}", name, value, low, high);
}

Status validate_sampling(const sdk::SamplingView& s, std::int32_t vocab) {
  TESSERA_TRY(in_range("temperature", s.temperature, 0, 100));
  TESSERA_TRY(in_range("top_p", s.top_p, 0, 1));
  if (s.top_p == 0.0)
    return fail(Code::invalid_argument, "top_p is 0; wanted more than 0 (use temperature 0 for greedy)");
  TESSERA_TRY(in_range("min_p", s.min_p, 0, 1));
  TESSERA_TRY(in_range("presence_penalty", s.presence_penalty, -2, 2));
  TESSERA_TRY(in_range("frequency_penalty", s.frequency_penalty, -2, 2));
  TESSERA_TRY(in_range("repetition_penalty", s.repetition_penalty, 0.01, 100));
  if (s.top_k < 0) return fail(Code::invalid_argument, "top_k is {}; wanted 0 (off) or more", s.top_k);
  for (const sdk::LogitBias& bias : s.logit_bias) {
    if (bias.token < 0 || bias.token >= vocab)
      return fail(Code::invalid_argument, "logit_bias names token {}; the vocabulary has 0..{}", bias.token, vocab - 1);
    TESSERA_TRY(in_range("logit_bias", static_cast<double>(bias.bias), -100, 100));
  }
  return {};
}

Status validate_loops(const sdk::RequestView& view, std::int32_t loops) {
  if (loops == 1) {
    const char* asked = view.max_loops != 0         ? "max_loops"
                        : view.min_loops != 1       ? "min_loops"
                        : view.exit_threshold != -1 ? "exit_threshold"
                                                    : nullptr;
    return asked == nullptr ? Status{}
                            : fail(Code::invalid_argument,
                                   "{} is for looped models and this model has one loop; leave it out", asked);
  }
  if (view.max_loops < 0 || view.max_loops > loops)
    return fail(Code::invalid_argument, "max_loops is {}; the model has 1 to {} (0 = all)", view.max_loops, loops);
  const std::int32_t most = view.max_loops == 0 ? loops : view.max_loops;
  if (view.min_loops < 1 || view.min_loops > most)
    return fail(Code::invalid_argument, "min_loops is {}; wanted 1 to {}", view.min_loops, most);
  return view.exit_threshold == -1 ? Status{} : in_range("exit_threshold", view.exit_threshold, 0, 1);
}

}  // namespace

LoopParams resolve_loops(const sdk::RequestView& view, const RequestBounds& bounds) {
  const double threshold = view.exit_threshold == -1 ? bounds.model_exit_threshold : view.exit_threshold;
  return {.max = view.max_loops == 0 ? bounds.loops : view.max_loops,
          .min = view.min_loops,
          .exit_threshold = static_cast<float>(threshold),
          .sparse_from = bounds.sparse_from,
          .decode_tail = 0};
}

Status validate(const sdk::RequestView& view, const RequestBounds& bounds) {
  TESSERA_TRY(validate_sampling(view.sampling, bounds.vocab));
  TESSERA_TRY(validate_loops(view, bounds.loops));
  if (view.num_choices < 1 || view.num_choices > kMaxChoices)
    return fail(Code::invalid_argument, "n is {}; wanted 1 to {}", view.num_choices, kMaxChoices);
  if (view.max_tokens < 0) return fail(Code::invalid_argument, "max_tokens is {}; wanted 1 or more", view.max_tokens);
  if (view.top_logprobs > kMaxTopLogprobs)
    return fail(Code::invalid_argument, "top_logprobs is {}; wanted 0 to {}", view.top_logprobs, kMaxTopLogprobs);
  if (view.stops.size() > kMaxStops)
    return fail(Code::invalid_argument, "stop has {} strings; wanted at most {}", view.stops.size(), kMaxStops);
  for (std::string_view stop : view.stops)
    if (stop.empty() || stop.size() > kMaxStopBytes)
      return fail(Code::invalid_argument, "a stop string has {} bytes; wanted 1 to {}", stop.size(), kMaxStopBytes);
  for (std::int32_t token : view.tokens)
    if (token < 0 || token >= bounds.vocab)
      return fail(Code::invalid_argument, "the prompt has token {}; the vocabulary has 0..{}", token, bounds.vocab - 1);
  return {};
}

Status fit_context(Request& request, std::int32_t max_tokens, const RequestBounds& bounds) {
  if (request.prompt.empty()) return fail(Code::invalid_argument, "the prompt is empty; wanted at least one token");
  const std::size_t prompt = request.prompt.size();
  const auto context = static_cast<std::size_t>(bounds.max_context);
  if (prompt >= context)
    return fail(Code::invalid_argument,
                "the prompt has {} tokens but the context is {} with room for the answer; "
                "shorten it",
                prompt, context);
  const auto room = static_cast<std::int32_t>(context - prompt);
  if (max_tokens > room)
    return fail(Code::invalid_argument,
                "the prompt has {} tokens and max_tokens is {}, together more than the context "
                "of {}; shorten the prompt or lower max_tokens to {}",
                prompt, max_tokens, context, room);
  request.max_tokens = max_tokens == 0 ? room : max_tokens;
  return {};
}

}  // namespace tessera
