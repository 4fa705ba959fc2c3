// Any bytes as a tokenizer.json: loaded or refused with a sentence, never a crash; what loads encodes any text into ids
// that it has, and text that a user wrote never becomes a special token.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "text/tokenizer.h"

using namespace tessera;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  // JSON has no NUL, so the first one ends the file; the text to encode follows it. Without one the file is the text.
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const std::size_t split = input.find('\0');
  const std::string_view file = input.substr(0, split);
  const std::string_view text = split == std::string_view::npos ? input : input.substr(split + 1);

  const auto tokenizer = Tokenizer::parse(file, "fuzz");
  if (!tokenizer.ok()) {
    if (tokenizer.status().message[0] == '\0') std::abort();
    return 0;
  }
  for (const auto special : {Tokenizer::Special::stay_text, Tokenizer::Special::become_tokens}) {
    for (const std::int32_t id : tokenizer->encode(text, special)) {
      if (id < 0 || id >= tokenizer->vocab_size()) std::abort();
      if (!tokenizer->id_of(tokenizer->piece(id))) std::abort();
      if (special == Tokenizer::Special::stay_text && tokenizer->is_special(id)) std::abort();
    }
  }
  return 0;
}
