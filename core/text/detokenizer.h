// Token bytes to valid UTF-8, as they come.
#pragma once
#include <string>
#include <string_view>

namespace tessera {

/// Holds back an incomplete UTF-8 sequence until it is complete or known to be broken; broken bytes become U+FFFD, one
/// for each maximal ill-formed part (Unicode 15, 3.9, "substitution of maximal subparts"). The concatenation of all
/// results is the same however the bytes were cut.
class Utf8Stream {
 public:
  std::string push(std::string_view bytes);
  /// What was held back, as U+FFFD if it is incomplete.
  std::string finish();

 private:
  std::string pending_;
};

}  // namespace tessera
