// Chat messages to a prompt.
#pragma once
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "tessera/sdk/frontend.h"
#include "text/tokenizer.h"

namespace tessera {

/// ChatML only for now: a model folder whose chat template is another one is refused by name when it loads.
class ChatTemplate {
 public:
  /// Reads tokenizer_config.json (or chat_template.jinja) of a model folder and recognizes ChatML by what it renders:
  /// <|im_start|>role\ncontent<|im_end|>\n for each message, then <|im_start|>assistant\n.
  /// A folder without a template gives a ChatTemplate that refuses to render.
  static Result<ChatTemplate> load(const std::filesystem::path& model_dir, const Tokenizer& tokenizer);

  /// Message contents are user text: special tokens in them stay text. Roles: system, user, assistant.
  Result<std::vector<std::int32_t>> render(std::span<const sdk::MessageView> messages,
                                           const Tokenizer& tokenizer) const;

 private:
  bool present_ = false;
  std::int32_t start_ = -1;
  std::int32_t end_ = -1;
};

}  // namespace tessera
