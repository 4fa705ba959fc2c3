// How ByteLevel cuts text into pieces before BPE, as PCRE2 patterns (UTF and UCP mode). Together the alternatives match
// at any place of any valid UTF-8.
#pragma once

namespace tessera {

// White_Space is written out: PCRE2's own \s has U+180E, which Unicode removed from White_Space.
#define TESSERA_SPACE R"(\t-\r\x20\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})"
inline constexpr const char* kByteLevel =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^)" TESSERA_SPACE R"(\p{L}\p{N}]+|[)" TESSERA_SPACE
    R"(]+(?![^)" TESSERA_SPACE R"(])|[)" TESSERA_SPACE R"(]+)";
// Digits before ByteLevel: every \p{N} is a piece, and a digit ends the piece before it as the end of the text would.
inline constexpr const char* kDigitsByteLevel =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+|\p{N}| ?[^)" TESSERA_SPACE R"(\p{L}\p{N}]+|[)" TESSERA_SPACE
    R"(]+(?![^)" TESSERA_SPACE R"(\p{N}])|[)" TESSERA_SPACE R"(]+)";
#undef TESSERA_SPACE

}  // namespace tessera
