// The text side of one choice: tokens in, safe text out, and why it ended.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "request/request.h"
#include "text/detokenizer.h"
#include "text/stop_matcher.h"
#include "text/tokenizer.h"

namespace tessera {

/// All text of all surfaces goes through here, streamed or whole.
class Answer {
 public:
  Answer(const Request& request, const std::vector<std::int32_t>& eos, const Tokenizer& tokenizer)
      : request_(request), eos_(eos), tokenizer_(tokenizer), stops_(request.stops) {}

  /// Text that became safe to show. Afterwards `finish()` says whether the choice is complete.
  std::string push(std::int32_t token);

  sdk::FinishReason finish() const { return finish_; }
  const std::string& stop_match() const { return stop_match_; }
  const std::vector<std::int32_t>& tokens() const { return tokens_; }

 private:
  const Request& request_;
  const std::vector<std::int32_t>& eos_;
  const Tokenizer& tokenizer_;
  Utf8Stream utf8_;
  StopMatcher stops_;
  std::vector<std::int32_t> tokens_;
  sdk::FinishReason finish_ = sdk::FinishReason::none;
  std::string stop_match_;
};

}  // namespace tessera
