#include "text/detokenizer.h"

#include "text/utf8.h"

namespace tessera {
namespace {
constexpr std::string_view kReplacement = "\xEF\xBF\xBD";
}

std::string Utf8Stream::push(std::string_view bytes) {
  pending_ += bytes;
  std::string out;
  std::size_t at = 0;
  while (at < pending_.size()) {
    const Utf8Sequence sequence = utf8_sequence(std::string_view(pending_).substr(at));
    if (sequence.truncated) break;
    if (sequence.valid) {
      out.append(pending_, at, sequence.size);
    } else {
      out += kReplacement;
    }
    at += sequence.size;
  }
  pending_.erase(0, at);
  return out;
}

std::string Utf8Stream::finish() {
  // What is pending is one truncated sequence, that is one maximal ill-formed part.
  const bool broken = !pending_.empty();
  pending_.clear();
  return std::string(broken ? kReplacement : std::string_view());
}

}  // namespace tessera
