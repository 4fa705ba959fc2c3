// Stop strings over a stream of text, across token boundaries.
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

/// Gives out text that can no longer be part of a stop string. The match that completes first wins; of matches that
/// complete at the same byte, the longest. Empty stop strings are ignored. Results do not depend on how text was cut.
class StopMatcher {
 public:
  explicit StopMatcher(std::vector<std::string> stops);

  struct Output {
    std::string text;      // safe to show
    bool stopped = false;  // the text before the stop string has been given out; nothing follows
    std::string match;     // the stop string
  };
  Output push(std::string_view text);
  /// The answer ended without a stop: what was held back.
  std::string finish();

 private:
  std::vector<std::string> stops_;
  std::string held_;
  bool stopped_ = false;
};

}  // namespace tessera
