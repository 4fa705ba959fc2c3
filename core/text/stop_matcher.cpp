#include "text/stop_matcher.h"

#include <algorithm>
#include <utility>

namespace tessera {

StopMatcher::StopMatcher(std::vector<std::string> stops) : stops_(std::move(stops)) {
  std::erase_if(stops_, [](const std::string& stop) { return stop.empty(); });
  // Longest first: of stops that complete at the same byte, the one that starts earliest.
  std::stable_sort(stops_.begin(), stops_.end(),
                   [](const std::string& a, const std::string& b) { return a.size() > b.size(); });
}

StopMatcher::Output StopMatcher::push(std::string_view text) {
  Output out;
  if (stopped_) return out;
  std::size_t end = held_.size();
  held_ += text;
  const std::string_view all = held_;
  // Looking at one byte after another makes the result independent of how the text was cut.
  for (++end; end <= all.size(); ++end) {
    for (const std::string& stop : stops_) {
      if (!all.substr(0, end).ends_with(stop)) continue;
      stopped_ = true;
      out = {held_.substr(0, end - stop.size()), true, stop};
      held_.clear();
      return out;
    }
  }
  std::size_t keep = stops_.empty() ? 0 : std::min(all.size(), stops_.front().size() - 1);
  for (; keep > 0; --keep) {
    const std::string_view tail = all.substr(all.size() - keep);
    const auto begins = [&](const std::string& stop) { return stop.starts_with(tail); };
    if (std::any_of(stops_.begin(), stops_.end(), begins)) break;
  }
  out.text = held_.substr(0, held_.size() - keep);
  held_.erase(0, held_.size() - keep);
  return out;
}

std::string StopMatcher::finish() { return std::exchange(held_, {}); }

}  // namespace tessera
