#include "config/reader.h"

#include <charconv>
#include <set>

#include "base/nearest.h"

namespace tessera::config_detail {
namespace {

constexpr std::size_t kQuotedBytes = 60;  // of a wrong value; one sentence has to fit a Status

std::string found(const YAML::Node& node) {
  if (!node.IsDefined() || node.IsNull()) return "empty";
  if (node.IsSequence()) return "a list";
  if (node.IsMap()) return "a section";
  const std::string& text = node.Scalar();
  return fmt::format("{} '{}{}'", node.Tag() == "!" ? "the text" : "set to", text.substr(0, kQuotedBytes),
                     text.size() > kQuotedBytes ? "..." : "");
}

/// Only files have lines; everything inside an override lies where the override does.
Where place(const Where& parent, const YAML::Mark& mark) {
  if (parent.line == 0 || mark.is_null()) return parent;
  return {parent.source, mark.line + 1, mark.column + 1};
}

/// A scalar that is written without quotes: "16" in quotes is a text, not a number.
bool plain(const YAML::Node& node) { return node.IsScalar() && node.Tag() != "!"; }

template <class Number>
bool parse(const std::string& text, Number& number) {
  const char* end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data(), end, number);
  return parsed.ec == std::errc() && parsed.ptr == end;
}

}  // namespace

Status refuse(const Value& value, std::string_view wanted) {
  return fail(Code::invalid_argument, "{}: {} is {}; wanted {}", value.where.text(),
              value.path.empty() ? "the configuration" : value.path, found(value.node), wanted);
}

Status unknown_key(const Value& value, const std::vector<std::string>& known) {
  const std::string near = nearest(value.key, known);
  return fail(Code::invalid_argument, "{}: unknown key '{}'; {}", value.key_where.text(), value.path.substr(0, 100),
              near.empty() ? fmt::format("known here are {}", fmt::join(known, ", "))
                           : fmt::format("did you mean '{}'?", near));
}

Status unknown_choice(const Value& value, const std::vector<std::string>& known) {
  const std::string near = value.node.IsScalar() ? nearest(value.node.Scalar(), known) : "";
  return refuse(value, fmt::format("{}{}{}", known.size() > 1 ? "one of " : "", fmt::join(known, ", "),
                                   near.empty() ? "" : fmt::format(" (did you mean {}?)", near)));
}

bool is_empty(const Value& value) {
  return value.node.IsNull() || ((value.node.IsMap() || value.node.IsSequence()) && value.node.size() == 0);
}

Result<std::vector<Value>> entries(const Value& section) {
  std::vector<Value> result;
  if (section.node.IsNull()) return result;
  if (!section.node.IsMap()) return refuse(section, "a section of 'key: value' lines");
  std::set<std::string> seen;
  for (const auto& entry : section.node) {
    const Where key_where = place(section.where, entry.first.Mark());
    if (!entry.first.IsScalar())
      return fail(Code::invalid_argument, "{}: a key in {} is no plain name; wanted 'key: value'", key_where.text(),
                  section.path.empty() ? "the configuration" : section.path);
    const std::string key = entry.first.Scalar();
    Value value{entry.second, section.path.empty() ? key : section.path + "." + key,
                entry.second.IsNull() ? key_where : place(section.where, entry.second.Mark()), key_where, key};
    if (!seen.insert(key).second)
      return fail(Code::invalid_argument, "{}: {} is given twice; keep one of the two", key_where.text(), value.path);
    result.push_back(std::move(value));
  }
  return result;
}

Result<std::vector<Value>> items(const Value& list) {
  if (!list.node.IsSequence()) return refuse(list, "a list");
  std::vector<Value> result;
  for (const YAML::Node& node : list.node) {
    const Where where = place(list.where, node.Mark());
    result.push_back({node, fmt::format("{}[{}]", list.path, result.size()), where, where, list.key});
  }
  return result;
}

Result<std::string> read_text(const Value& value) {
  if (value.node.IsNull()) return std::string();
  if (!value.node.IsScalar()) return refuse(value, "a text");
  return value.node.Scalar();
}

Result<std::int64_t> read_int(const Value& value, std::int64_t min, std::int64_t max) {
  std::int64_t number = 0;
  if (!plain(value.node) || !parse(value.node.Scalar(), number) || number < min || number > max)
    return refuse(value, fmt::format("a whole number from {} to {}", min, max));
  return number;
}

Result<double> read_real(const Value& value, double min, double max) {
  double number = 0;
  if (!plain(value.node) || !parse(value.node.Scalar(), number) || !(number >= min && number <= max))
    return refuse(value, fmt::format("a number from {} to {}", min, max));
  return number;
}

Result<bool> read_bool(const Value& value) {
  if (plain(value.node) && value.node.Scalar() == "true") return true;
  if (plain(value.node) && value.node.Scalar() == "false") return false;
  return refuse(value, "true or false");
}

Result<std::vector<std::string>> read_texts(const Value& value) {
  std::vector<std::string> texts;
  if (value.node.IsNull()) return texts;
  if (value.node.IsScalar()) return std::vector<std::string>{value.node.Scalar()};
  auto list = items(value);
  if (!list.ok()) return refuse(value, "a list of texts");
  for (const Value& item : *list) {
    if (!item.node.IsScalar() || item.node.Scalar().empty()) return refuse(item, "a text");
    texts.push_back(item.node.Scalar());
  }
  return texts;
}

}  // namespace tessera::config_detail
