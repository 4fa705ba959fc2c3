// Typed reading of one YAML value. The only files that see yaml-cpp are this folder's.
#pragma once
#include <yaml-cpp/yaml.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "config/config.h"

namespace tessera::config_detail {

/// A node, its dotted path ("cache.pages"; "" for the root) and the places of it and of its key.
struct Value {
  YAML::Node node;
  std::string path;
  Where where;
  Where key_where;
  std::string key;  // last part of the path
};

/// "{where}: {path} is {found}; wanted {wanted}"
Status refuse(const Value& value, std::string_view wanted);
Status unknown_key(const Value& value, const std::vector<std::string>& known);
/// `value` says "did you mean" when a choice is near.
Status unknown_choice(const Value& value, const std::vector<std::string>& known);

bool is_empty(const Value& value);  // null, or a section or list without entries

/// Entries of a section in order; an absent or null section has none. Refuses keys given twice.
Result<std::vector<Value>> entries(const Value& section);
Result<std::vector<Value>> items(const Value& list);

Result<std::string> read_text(const Value& value);  // null reads as ""
Result<std::int64_t> read_int(const Value& value, std::int64_t min, std::int64_t max);
Result<double> read_real(const Value& value, double min, double max);
Result<bool> read_bool(const Value& value);
Result<std::vector<std::string>> read_texts(const Value& value);  // a list, or one text

/// Sets everything `root` mentions; what it does not mention stays.
Status apply(Config& config, const Value& root);

}  // namespace tessera::config_detail
