#include "text/chat.h"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "text/parse_json.h"

namespace tessera {
namespace {

using nlohmann::json;

void replace_all(std::string& text, std::string_view from, std::string_view to) {
  for (std::size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size())
    text.replace(at, from.size(), to);
}

std::optional<std::string> read_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return std::nullopt;
  return std::string{std::istreambuf_iterator<char>(file), {}};
}

/// The inside of a tag without blanks outside of strings, with one kind of quote and newlines written \n.
std::string normal_tag(std::string_view body) {
  std::string out;
  char quote = '\0';
  for (const char c : body) {
    if (quote == '\0' && (c == ' ' || c == '\t' || c == '\n' || c == '\r')) continue;
    if (c == quote || (quote == '\0' && (c == '\'' || c == '"'))) {
      quote = quote == '\0' ? c : '\0';
      out += '\'';
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\'') {
      out += "\\'";  // inside of double quotes
    } else {
      out += c;
    }
  }
  return out;
}

/// Template text between tags, as an output tag, so that it compares equal to a string that renders the same.
void append_text(std::string& out, std::string text) {
  if (text.empty()) return;
  replace_all(text, "\\", "\\\\");  // a backslash or a quote of the text is one, not the start of an escape or a join
  replace_all(text, "'", "\\'");
  replace_all(text, "\n", "\\n");
  out += "{{'" + text + "'}}";
}

/// A spelling that templates share when they differ only in blanks, quotes and the way they join strings. Blocks are
/// trimmed as the reference does: trim_blocks and lstrip_blocks.
std::string normal_form(std::string_view source) {
  constexpr std::string_view kBlanks = " \t\r\n";
  std::string out;
  bool trim_left = false, after_block = false;
  for (std::size_t at = 0; at <= source.size();) {
    std::size_t open = std::min(source.find("{%", at), source.find("{{", at));
    if (open == std::string_view::npos) open = source.size();
    std::string text(source.substr(at, open - at));
    if (after_block && text.starts_with('\n')) text.erase(0, 1);
    if (trim_left) text.erase(0, std::min(text.find_first_not_of(kBlanks), text.size()));
    if (open == source.size()) {
      if (text.ends_with('\n')) text.pop_back();  // keep_trailing_newline is off
      append_text(out, text);
      break;
    }
    const bool block = source[open + 1] == '%';
    const std::size_t close = source.find(block ? "%}" : "}}", open + 2);
    if (close == std::string_view::npos) return "";
    std::string_view body = source.substr(open + 2, close - open - 2);
    if (body.starts_with('-')) {
      body.remove_prefix(1);
      text.erase(text.find_last_not_of(kBlanks) + 1);
    } else if (block) {
      const std::size_t last = text.find_last_not_of(" \t") + 1;
      if (last > 0 ? text[last - 1] == '\n' : (at == 0 || after_block)) text.erase(last);
    }
    trim_left = body.ends_with('-');
    if (trim_left) body.remove_suffix(1);
    append_text(out, text);
    out += (block ? "{%" : "{{") + normal_tag(body) + (block ? "%}" : "}}");
    after_block = block;
    at = close + 2;
  }
  replace_all(out, "message.role", "message['role']");
  replace_all(out, "message.content", "message['content']");
  replace_all(out, "}}{{", "+");
  replace_all(out, "'+'", "");
  replace_all(out, "{{(", "{{");
  replace_all(out, ")}}", "}}");
  replace_all(out, "{%ifnotadd_generation_promptisdefined%}{%setadd_generation_prompt=false%}{%endif%}", "");
  return out;
}

constexpr std::string_view kChatMl =
    "{%formessageinmessages%}{{'<|im_start|>'+message['role']+'\\n'+message['content']+'<|im_end|>\\n'}}{%endfor%}"
    "{%ifadd_generation_prompt%}{{'<|im_start|>assistant\\n'}}{%endif%}";

/// The template of tokenizer_config.json: a string, or the "default" of a list of named ones.
Result<std::optional<std::string>> configured_template(const std::filesystem::path& path) {
  const auto text = read_file(path);
  if (!text) return std::optional<std::string>();
  const json root = parse_json(*text);
  if (!root.is_object()) return fail(Code::invalid_argument, "{}: not a JSON object", path.string());
  const auto found = root.find("chat_template");
  if (found == root.end() || found->is_null()) return std::optional<std::string>();
  if (found->is_string()) return std::optional(found->get<std::string>());
  if (found->is_array())
    for (const json& entry : *found)
      if (entry.is_object() && entry.value("name", json()) == "default" && entry.value("template", json()).is_string())
        return std::optional(entry["template"].get<std::string>());
  return fail(Code::invalid_argument, "{}: chat_template is neither a string nor a list with a default", path.string());
}

}  // namespace

Result<ChatTemplate> ChatTemplate::load(const std::filesystem::path& model_dir, const Tokenizer& tokenizer) {
  std::filesystem::path source = model_dir / "chat_template.jinja";
  std::optional<std::string> text = read_file(source);
  if (!text) {
    source = model_dir / "tokenizer_config.json";
    Result<std::optional<std::string>> configured = configured_template(source);
    if (!configured.ok()) return configured.status();
    text = std::move(*configured);
  }
  ChatTemplate chat;
  if (!text) return chat;
  const std::string normal = normal_form(*text);
  if (normal != kChatMl)
    return fail(Code::unsupported,
                "{}: the chat template is not plain ChatML, the only one implemented: it starts with \"{}\"",
                source.string(), text->substr(0, 120));
  const auto start = tokenizer.id_of("<|im_start|>"), end = tokenizer.id_of("<|im_end|>");
  if (!start || !end || !tokenizer.is_special(*start) || !tokenizer.is_special(*end))
    return fail(Code::invalid_argument,
                "{}: the chat template is ChatML, but the tokenizer lacks "
                "the special tokens <|im_start|> and <|im_end|>",
                source.string());
  chat.present_ = true;
  chat.start_ = *start;
  chat.end_ = *end;
  return chat;
}

Result<std::vector<std::int32_t>> ChatTemplate::render(std::span<const sdk::MessageView> messages,
                                                       const Tokenizer& tokenizer) const {
  if (!present_)
    return fail(Code::unsupported, "this model has no chat template; send a text prompt instead of messages");
  std::vector<std::int32_t> ids;
  const auto append = [&](std::string_view text) {
    const std::vector<std::int32_t> part = tokenizer.encode(text, Tokenizer::Special::stay_text);
    ids.insert(ids.end(), part.begin(), part.end());
  };
  for (std::size_t i = 0; i < messages.size(); ++i) {
    const std::string_view role = messages[i].role;
    if (role != "system" && role != "user" && role != "assistant")
      return fail(Code::invalid_argument, "message {} has the role \"{}\"; it must be system, user or assistant", i,
                  role.substr(0, 64));
    ids.push_back(start_);
    append(std::string(role) + "\n" + std::string(messages[i].content));
    ids.push_back(end_);
    append("\n");
  }
  ids.push_back(start_);
  append("assistant\n");
  return ids;
}

}  // namespace tessera
