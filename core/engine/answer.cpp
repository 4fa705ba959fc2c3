#include "engine/answer.h"

#include <algorithm>

namespace tessera {

std::string Answer::push(std::int32_t token) {
  tokens_.push_back(token);
  const bool eos = !request_.ignore_eos && std::find(eos_.begin(), eos_.end(), token) != eos_.end();
  const bool full = static_cast<std::int32_t>(tokens_.size()) >= request_.max_tokens;
  std::string text = eos ? std::string() : utf8_.push(tokenizer_.bytes(token));
  if (eos || full) text += utf8_.finish();
  StopMatcher::Output output = stops_.push(text);
  if (output.stopped) {
    finish_ = sdk::FinishReason::stop;
    stop_match_ = output.match;
    return output.text;
  }
  if (eos || full) {
    finish_ = eos ? sdk::FinishReason::stop : sdk::FinishReason::length;
    output.text += stops_.finish();
  }
  return output.text;
}

}  // namespace tessera
