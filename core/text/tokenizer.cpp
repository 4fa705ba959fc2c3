#include "text/tokenizer.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <functional>
#include <iterator>
#include <nlohmann/json.hpp>
#include <queue>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "text/byte_alphabet.h"
#include "text/byte_level_pattern.h"
#include "text/parse_json.h"
#include "text/utf8.h"

namespace tessera {
namespace {

using nlohmann::json;
constexpr std::uint64_t kMaxIds = 4'000'000;

struct CodeFree {
  void operator()(pcre2_code* code) const { pcre2_code_free(code); }
};
struct MatchFree {
  void operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
};

std::uint64_t pair_key(std::int32_t left, std::int32_t right) {
  return (static_cast<std::uint64_t>(static_cast<std::uint32_t>(left)) << 32) | static_cast<std::uint32_t>(right);
}

struct Merge {
  std::int32_t rank;
  std::int32_t id;
};

struct Token {
  std::string piece;
  std::string bytes;
  bool present = false;
  bool special = false;
  bool from_text = false;  // a byte or the result of a merge: BPE can give it for plain text
};

struct Added {
  std::string content;
  std::int32_t id;
  bool special;
};

}  // namespace

struct Tokenizer::Impl {
  std::vector<Token> tokens;
  std::unordered_map<std::string, std::int32_t> ids;
  std::unordered_map<std::uint64_t, Merge> merges;
  std::array<std::int32_t, 256> byte_ids{};
  std::array<std::vector<Added>, 256> added;  // by first byte, longest first
  bool ignore_merges = false;
  std::unique_ptr<pcre2_code, CodeFree> pattern;

  void encode_plain(std::string_view text, std::vector<std::int32_t>& out) const;
  void encode_run(std::string_view run, pcre2_match_data* match, std::vector<std::int32_t>& out) const;
  void encode_piece(std::string_view piece, std::vector<std::int32_t>& out) const;
  const Added* added_at(std::string_view text, bool special) const;

  Status read(const json& root, std::string_view source);
  Status read_model(const json& model, std::string_view source);
  Status read_merges(const json& list, std::string_view source);
  Status read_added(const json& list, std::string_view source);
  Status read_pre_tokenizer(const json& node, std::string_view source);
  Status add(const std::string& piece, const json& id, std::string_view source);
};

void Tokenizer::Impl::encode_piece(std::string_view piece, std::vector<std::int32_t>& out) const {
  if (ignore_merges) {
    std::string written;
    for (const char c : piece) written += alphabet().text[static_cast<unsigned char>(c)];
    const auto found = ids.find(written);
    if (found != ids.end() && !tokens[static_cast<std::size_t>(found->second)].special) {
      out.push_back(found->second);
      return;
    }
  }
  struct Symbol {
    std::int32_t id, previous, next;
  };
  std::vector<Symbol> symbols;
  symbols.reserve(piece.size());
  for (const char c : piece) {  // a byte that the vocabulary lacks is dropped, as the reference does without unk_token
    const std::int32_t id = byte_ids[static_cast<unsigned char>(c)];
    const auto here = static_cast<std::int32_t>(symbols.size());
    if (id >= 0) symbols.push_back({id, here - 1, here + 1});
  }
  if (symbols.empty()) return;
  symbols.back().next = -1;

  // (rank, position, merged id, key of the pair): the lowest rank first, then the leftmost.
  using Candidate = std::tuple<std::int32_t, std::int32_t, std::int32_t, std::uint64_t>;
  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> queue;
  const auto offer = [&](std::int32_t at) {
    const Symbol& symbol = symbols[static_cast<std::size_t>(at)];
    if (symbol.next < 0) return;
    const std::uint64_t key = pair_key(symbol.id, symbols[static_cast<std::size_t>(symbol.next)].id);
    if (const auto found = merges.find(key); found != merges.end())
      queue.emplace(found->second.rank, at, found->second.id, key);
  };
  for (std::size_t i = 0; i < symbols.size(); ++i) offer(static_cast<std::int32_t>(i));
  while (!queue.empty()) {
    const auto [rank, at, merged, key] = queue.top();
    queue.pop();
    Symbol& left = symbols[static_cast<std::size_t>(at)];
    if (left.id < 0 || left.next < 0) continue;
    Symbol& right = symbols[static_cast<std::size_t>(left.next)];
    if (pair_key(left.id, right.id) != key) continue;  // one of the two has been merged meanwhile
    left.id = merged;
    right.id = -1;
    left.next = right.next;
    if (left.next >= 0) symbols[static_cast<std::size_t>(left.next)].previous = at;
    if (left.previous >= 0) offer(left.previous);
    offer(at);
  }
  for (std::int32_t i = 0; i >= 0; i = symbols[static_cast<std::size_t>(i)].next)
    out.push_back(symbols[static_cast<std::size_t>(i)].id);
}

void Tokenizer::Impl::encode_run(std::string_view run, pcre2_match_data* match, std::vector<std::int32_t>& out) const {
  // The run is known to be valid; checking it again at each match would be quadratic.
  const auto* subject = reinterpret_cast<PCRE2_SPTR>(run.data());
  for (std::size_t at = 0; at < run.size();) {
    const int found = pcre2_match(pattern.get(), subject, run.size(), at, PCRE2_NO_UTF_CHECK, match, nullptr);
    std::size_t end = found > 0 ? pcre2_get_ovector_pointer(match)[1] : run.size();
    if (end <= at) end = run.size();
    encode_piece(run.substr(at, end - at), out);
    at = end;
  }
}

void Tokenizer::Impl::encode_plain(std::string_view text, std::vector<std::int32_t>& out) const {
  if (text.empty()) return;
  const std::unique_ptr<pcre2_match_data, MatchFree> match(pcre2_match_data_create(1, nullptr));
  if (!match) throw std::bad_alloc();
  std::size_t start = 0;
  for (std::size_t at = 0; at < text.size();) {
    const Utf8Sequence sequence = utf8_sequence(text.substr(at));
    if (sequence.valid) {
      at += sequence.size;
      continue;
    }
    encode_run(text.substr(start, at - start), match.get(), out);
    for (std::size_t i = 0; i < sequence.size; ++i) encode_piece(text.substr(at + i, 1), out);
    at += sequence.size;
    start = at;
  }
  encode_run(text.substr(start), match.get(), out);
}

const Added* Tokenizer::Impl::added_at(std::string_view text, bool special) const {
  for (const Added& candidate : added[static_cast<unsigned char>(text.front())])
    if ((special || !candidate.special) && text.starts_with(candidate.content)) return &candidate;
  return nullptr;
}

Status Tokenizer::Impl::add(const std::string& piece, const json& id, std::string_view source) {
  if (!id.is_number_unsigned() || id.get<std::uint64_t>() >= kMaxIds)
    return fail(Code::invalid_argument, "{}: the id of token \"{}\" is {}, but must be an integer from 0 to {}", source,
                piece, id.is_number() ? id.dump() : id.type_name(), kMaxIds - 1);
  const auto index = static_cast<std::size_t>(id.get<std::uint64_t>());
  if (index >= tokens.size()) tokens.resize(index + 1);
  Token& token = tokens[index];
  if (token.present)
    return fail(Code::invalid_argument, "{}: tokens \"{}\" and \"{}\" both have id {}; ids must differ", source,
                token.piece, piece, index);
  token = {piece, alphabet().decode(piece), true, false, false};
  ids.emplace(piece, static_cast<std::int32_t>(index));
  return {};
}

Status Tokenizer::Impl::read_merges(const json& list, std::string_view source) {
  if (!list.is_array()) return fail(Code::invalid_argument, "{}: model.merges must be a list", source);
  std::int32_t rank = 0;
  for (const json& entry : list) {
    std::string left, right;
    if (entry.is_array() && entry.size() == 2 && entry[0].is_string() && entry[1].is_string()) {
      left = entry[0].get<std::string>();
      right = entry[1].get<std::string>();
    } else if (entry.is_string()) {
      const auto& text = entry.get_ref<const std::string&>();
      const std::size_t space = text.find(' ');
      if (space != std::string::npos && text.find(' ', space + 1) == std::string::npos) {
        left = text.substr(0, space);
        right = text.substr(space + 1);
      }
    }
    if (left.empty() || right.empty())
      return fail(Code::invalid_argument, "{}: merge {} is neither [\"a\", \"b\"] nor \"a b\"", source, rank);
    const auto a = ids.find(left), b = ids.find(right), both = ids.find(left + right);
    if (a == ids.end() || b == ids.end() || both == ids.end())
      return fail(Code::invalid_argument, "{}: merge {} (\"{}\" and \"{}\") uses a token that model.vocab lacks",
                  source, rank, left, right);
    tokens[static_cast<std::size_t>(both->second)].from_text = true;
    merges[pair_key(a->second, b->second)] = {rank++, both->second};
  }
  return {};
}

Status Tokenizer::Impl::read_model(const json& model, std::string_view source) {
  if (!model.is_object()) return fail(Code::invalid_argument, "{}: model must be an object", source);
  const json type = model.value("type", json("BPE"));
  if (type != "BPE")
    return fail(Code::unsupported, "{}: model.type is {}; only \"BPE\" is implemented", source, type.dump());
  for (const char* name :
       {"byte_fallback", "dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix"}) {
    const json value = model.value(name, json());
    const bool off = value.is_null() || value == false || value == "" || (value.is_number() && value == 0);
    if (!off)
      return fail(Code::unsupported, "{}: model.{} is {}; only null or false is implemented", source, name,
                  value.dump());
  }
  const json ignore = model.value("ignore_merges", json(false));
  if (!ignore.is_boolean())
    return fail(Code::invalid_argument, "{}: model.ignore_merges must be true or false", source);
  ignore_merges = ignore.get<bool>();
  const auto vocab = model.find("vocab");
  if (vocab == model.end() || !vocab->is_object())
    return fail(Code::invalid_argument, "{}: model.vocab must be an object of token to id", source);
  for (const auto& [piece, id] : vocab->items()) TESSERA_TRY(add(piece, id, source));
  for (std::size_t b = 0; b < 256; ++b) {
    const auto found = ids.find(alphabet().text[b]);
    byte_ids[b] = found == ids.end() ? -1 : found->second;
    if (byte_ids[b] >= 0) tokens[static_cast<std::size_t>(byte_ids[b])].from_text = true;
  }
  return read_merges(model.value("merges", json::array()), source);
}

Status Tokenizer::Impl::read_added(const json& list, std::string_view source) {
  if (list.is_null()) return {};
  if (!list.is_array()) return fail(Code::invalid_argument, "{}: added_tokens must be a list", source);
  std::unordered_map<std::string, bool> seen;
  for (const json& entry : list) {
    if (!entry.is_object() || !entry.contains("id") || !entry.value("content", json()).is_string())
      return fail(Code::invalid_argument, "{}: an entry of added_tokens lacks its id or content", source);
    const std::string content = entry["content"].get<std::string>();
    if (content.empty() || !seen.emplace(content, true).second)
      return fail(Code::invalid_argument, "{}: added token \"{}\" is empty or listed twice", source, content);
    for (const char* name : {"lstrip", "rstrip", "single_word"})
      if (entry.value(name, json(false)) != false)
        return fail(Code::unsupported, "{}: added token \"{}\" has {}; only false is implemented", source, content,
                    name);
    const auto known = ids.find(content);
    if (known == ids.end()) {
      TESSERA_TRY(add(content, entry["id"], source));
    } else if (entry["id"] != known->second) {
      return fail(Code::invalid_argument, "{}: added token \"{}\" has another id than in model.vocab", source, content);
    }
    const std::int32_t id = ids.at(content);
    Token& token = tokens[static_cast<std::size_t>(id)];
    token.special = entry.value("special", json(false)) == true;
    if (token.special && token.from_text)
      return fail(Code::unsupported,
                  "{}: special token \"{}\" is also a byte or the result of a merge, so that plain text could become "
                  "it; special tokens must be out of the reach of BPE",
                  source, content);
    token.bytes = token.special ? std::string() : content;
    added[static_cast<unsigned char>(content[0])].push_back({content, id, token.special});
  }
  for (auto& group : added)
    std::stable_sort(group.begin(), group.end(),
                     [](const Added& a, const Added& b) { return a.content.size() > b.content.size(); });
  return {};
}

Status Tokenizer::Impl::read_pre_tokenizer(const json& node, std::string_view source) {
  std::vector<json> steps;
  if (node.is_object() && node.value("type", json()) == "Sequence") {
    const json list = node.value("pretokenizers", json());
    if (list.is_array()) steps.assign(list.begin(), list.end());
  } else {
    steps.push_back(node);
  }
  bool digits = false, byte_level = false;
  for (const json& step : steps) {
    const json type = step.is_object() ? step.value("type", json()) : json();
    if (type == "Digits" && !digits && !byte_level && step.value("individual_digits", json(false)) == true) {
      digits = true;
    } else if (type == "ByteLevel" && !byte_level && step.value("add_prefix_space", json(true)) == false &&
               step.value("use_regex", json(true)) == true) {
      byte_level = true;
    } else {
      return fail(Code::unsupported,
                  "{}: pre_tokenizer step {} is not implemented; known are Digits (individual_digits true) and then "
                  "ByteLevel (add_prefix_space false, use_regex true)",
                  source, step.dump().substr(0, 200));
    }
  }
  if (!byte_level) return fail(Code::unsupported, "{}: pre_tokenizer has no ByteLevel step; one is needed", source);
  int error = 0;
  PCRE2_SIZE offset = 0;
  pattern.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(digits ? kDigitsByteLevel : kByteLevel),
                              PCRE2_ZERO_TERMINATED, PCRE2_UTF | PCRE2_UCP | PCRE2_ANCHORED, &error, &offset, nullptr));
  if (!pattern)
    return fail(Code::internal, "the pre-tokenizer pattern does not compile: PCRE2 error {} at {}", error, offset);
  return {};
}

Status Tokenizer::Impl::read(const json& root, std::string_view source) {
  if (!root.is_object())
    return fail(Code::invalid_argument, "{}: not a JSON object; a tokenizer.json was wanted", source);
  const auto type_of = [&](const char* name) {
    const json node = root.value(name, json());
    if (node.is_null()) return std::string();
    const json type = node.is_object() ? node.value("type", json()) : json();
    return type.is_string() ? type.get<std::string>() : std::string("unnamed");
  };
  if (const std::string type = type_of("normalizer"); !type.empty())
    return fail(Code::unsupported, "{}: normalizer {} is not implemented; only null is", source, type);
  if (const std::string type = type_of("post_processor"); !type.empty() && type != "ByteLevel")
    return fail(Code::unsupported, "{}: post_processor {} is not implemented; only null and ByteLevel are", source,
                type);
  if (const std::string type = type_of("decoder"); type != "ByteLevel")
    return fail(Code::unsupported, "{}: decoder {} is not implemented; only ByteLevel is", source,
                type.empty() ? "null" : type);
  TESSERA_TRY(read_pre_tokenizer(root.value("pre_tokenizer", json()), source));
  TESSERA_TRY(read_model(root.value("model", json()), source));
  return read_added(root.value("added_tokens", json()), source);
}

Tokenizer::Tokenizer(std::unique_ptr<const Impl> impl) : impl_(std::move(impl)) {}
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;
Tokenizer::~Tokenizer() = default;

Result<Tokenizer> Tokenizer::load(const std::filesystem::path& tokenizer_json) {
  std::ifstream file(tokenizer_json, std::ios::binary);
  if (!file) return fail(Code::not_found, "{}: cannot be read; a tokenizer.json was wanted", tokenizer_json.string());
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  return parse(text, tokenizer_json.string());
}

Result<Tokenizer> Tokenizer::parse(std::string_view text, std::string_view source_name) {
  auto impl = std::make_unique<Impl>();
  Status status = sdk::guarded([&]() -> Status {
    const json root = parse_json(text);
    if (root.is_discarded()) return fail(Code::invalid_argument, "{}: not valid JSON, or nested too deep", source_name);
    return impl->read(root, source_name);
  });
  if (!status.ok()) return status;
  return Tokenizer(std::move(impl));
}

std::vector<std::int32_t> Tokenizer::encode(std::string_view text, Special special) const {
  std::vector<std::int32_t> out;
  std::size_t start = 0;
  for (std::size_t at = 0; at < text.size();) {
    const Added* found = impl_->added_at(text.substr(at), special == Special::become_tokens);
    if (found == nullptr) {
      ++at;
      continue;
    }
    impl_->encode_plain(text.substr(start, at - start), out);
    out.push_back(found->id);
    at += found->content.size();
    start = at;
  }
  impl_->encode_plain(text.substr(start), out);
  return out;
}

std::string_view Tokenizer::bytes(std::int32_t id) const {
  return id < 0 || id >= vocab_size() ? std::string_view() : impl_->tokens[static_cast<std::size_t>(id)].bytes;
}
std::string_view Tokenizer::piece(std::int32_t id) const {
  return id < 0 || id >= vocab_size() ? std::string_view() : impl_->tokens[static_cast<std::size_t>(id)].piece;
}
bool Tokenizer::is_special(std::int32_t id) const {
  return id >= 0 && id < vocab_size() && impl_->tokens[static_cast<std::size_t>(id)].special;
}
std::optional<std::int32_t> Tokenizer::id_of(std::string_view piece) const {
  const auto found = impl_->ids.find(std::string(piece));
  return found == impl_->ids.end() ? std::nullopt : std::optional(found->second);
}
std::int32_t Tokenizer::vocab_size() const { return static_cast<std::int32_t>(impl_->tokens.size()); }

}  // namespace tessera
