// Byte-level BPE from a Hugging Face tokenizer.json.
#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace tessera {

/// Immutable after loading; every const call is thread-safe.
class Tokenizer {
 public:
  /// Refuses, by name, any normalizer, pre-tokenizer, post-processor, decoder or model that is not implemented.
  static Result<Tokenizer> load(const std::filesystem::path& tokenizer_json);
  static Result<Tokenizer> parse(std::string_view json, std::string_view source_name);

  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;
  ~Tokenizer();

  /// UTF-8 text to ids. `special`: whether the literal text of a special token becomes that token (templates) or stays
  /// text (anything a user wrote). Invalid UTF-8 is encoded byte by byte, so that decode gives the same bytes back.
  enum class Special { stay_text, become_tokens };
  std::vector<std::int32_t> encode(std::string_view text, Special special) const;

  /// The bytes of a token; "" for special tokens and for ids the vocabulary does not have.
  std::string_view bytes(std::int32_t id) const;
  /// The text of a token as the file writes it, for people ("Ġthe", "<|im_end|>").
  std::string_view piece(std::int32_t id) const;
  bool is_special(std::int32_t id) const;
  std::optional<std::int32_t> id_of(std::string_view piece) const;
  std::int32_t vocab_size() const;  // largest id + 1

 private:
  struct Impl;
  explicit Tokenizer(std::unique_ptr<const Impl> impl);
  std::unique_ptr<const Impl> impl_;
};

}  // namespace tessera
