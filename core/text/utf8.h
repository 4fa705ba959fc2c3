// One UTF-8 sequence at the start of some bytes.
#pragma once
#include <cstddef>
#include <string_view>

namespace tessera {

struct Utf8Sequence {
  std::size_t size;  // bytes: of the sequence, or of the maximal ill-formed part; at least 1
  bool valid;
  bool truncated;  // not valid, but more bytes could make it so
};

/// `bytes` is not empty. Well-formedness as in Unicode 15, table 3-7.
constexpr Utf8Sequence utf8_sequence(std::string_view bytes) {
  const auto at = [&](std::size_t i) { return static_cast<unsigned char>(bytes[i]); };
  const unsigned char lead = at(0);
  if (lead < 0x80) return {1, true, false};
  if (lead < 0xC2 || lead > 0xF4) return {1, false, false};
  const std::size_t size = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  unsigned char low = 0x80, high = 0xBF;  // of the second byte
  if (lead == 0xE0) low = 0xA0;           // no overlong forms
  if (lead == 0xED) high = 0x9F;          // no surrogates
  if (lead == 0xF0) low = 0x90;           // no overlong forms
  if (lead == 0xF4) high = 0x8F;          // nothing above U+10FFFF
  for (std::size_t i = 1; i < size; ++i) {
    if (i == bytes.size()) return {i, false, true};
    if (at(i) < low || at(i) > high) return {i, false, false};
    low = 0x80;
    high = 0xBF;
  }
  return {size, true, false};
}

}  // namespace tessera
