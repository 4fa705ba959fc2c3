// How byte-level BPE writes bytes as printable characters.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>

#include "text/utf8.h"

namespace tessera {

inline void append_utf8(std::string& out, std::uint32_t point) {  // point < 0x800 is all that the byte alphabet needs
  if (point < 0x80) {
    out += static_cast<char>(point);
  } else {
    out += static_cast<char>(0xC0 | (point >> 6));
    out += static_cast<char>(0x80 | (point & 0x3F));
  }
}

/// The printable stand-in of every byte: itself where it is printable Latin-1, else the next of U+0100...
struct ByteAlphabet {
  std::array<std::string, 256> text;
  std::unordered_map<std::string_view, char> byte;
  ByteAlphabet() {
    std::uint32_t next = 0x100;
    for (std::uint32_t b = 0; b < 256; ++b) {
      const bool printable = (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b != 0xAD);
      append_utf8(text[b], printable ? b : next++);
    }
    for (std::size_t b = 0; b < 256; ++b) byte.emplace(text[b], static_cast<char>(b));
  }
  /// A piece with a character outside the alphabet stands for its own UTF-8, as in the reference decoder.
  std::string decode(std::string_view piece) const {
    std::string out;
    for (std::size_t i = 0; i < piece.size();) {
      const std::size_t size = utf8_sequence(piece.substr(i)).size;
      const auto found = byte.find(piece.substr(i, size));
      if (found == byte.end()) return std::string(piece);
      out += found->second;
      i += size;
    }
    return out;
  }
};

inline const ByteAlphabet& alphabet() {
  static const ByteAlphabet kAlphabet;
  return kAlphabet;
}

}  // namespace tessera
