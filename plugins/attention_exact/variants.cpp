#include "variants.h"

#include <sstream>

namespace tessera_exact {

namespace {

std::vector<std::string> split(const std::string& name) {
  std::vector<std::string> parts;
  std::size_t begin = 0;
  while (true) {
    const std::size_t end = name.find('-', begin);
    parts.push_back(name.substr(begin, end - begin));
    if (end == std::string::npos) return parts;
    begin = end + 1;
  }
}

/// Reads "q4" as 4 when it is one of `allowed`.
bool read_size(const std::string& part, char letter, const std::vector<int>& allowed, int* out) {
  for (const int size : allowed)
    if (part == letter + std::to_string(size)) {
      *out = size;
      return true;
    }
  return false;
}

bool read_suffixes(const std::vector<std::string>& parts, std::size_t first, Variant* variant) {
  for (std::size_t i = first; i < parts.size(); ++i) {
    bool* flag = parts[i] == "hybrid" ? &variant->hybrid : parts[i] == "cache" ? &variant->cache : nullptr;
    if (flag == nullptr || *flag) return false;
    *flag = true;
  }
  return true;
}

bool read(const std::string& name, Variant* variant) {
  const std::vector<std::string> parts = split(name);
  if (name == "auto" || name == "exact") {
    variant->family = name == "auto" ? Family::automatic : Family::exact;
    return true;
  }
  const std::size_t first = parts[0] == "exact" ? 1 : 0;
  variant->family = first == 1 ? Family::exact : Family::online;
  if (parts.size() < first + 2) return false;
  if (!read_size(parts[first], 'q', {1, 2, 4}, &variant->query_rows)) return false;
  if (!read_size(parts[first + 1], 'k', {16, 32, 64}, &variant->tile_keys)) return false;
  if (!read_suffixes(parts, first + 2, variant)) return false;
  // Of the online family the options exist on one tile only, as published.
  const bool plain = !variant->hybrid && !variant->cache;
  return variant->family == Family::exact || plain || (variant->query_rows == 2 && variant->tile_keys == 32);
}

std::vector<std::string> make_names() {
  std::vector<std::string> names{"auto"};
  for (const char* family : {"exact-", ""})
    for (const char* q : {"q1", "q2", "q4"})
      for (const char* k : {"k16", "k32", "k64"})
        for (const char* options : {"", "-hybrid", "-cache", "-hybrid-cache"}) {
          const std::string name = std::string(family) + q + "-" + k + options;
          Variant variant;
          if (read(name, &variant)) names.push_back(name);
        }
  return names;
}

}  // namespace

const std::vector<std::string>& variant_names() {
  static const std::vector<std::string> names = make_names();
  return names;
}

const char* variant_list() {
  static const std::string list = [] {
    std::ostringstream text;
    for (const std::string& name : variant_names()) text << (text.tellp() > 0 ? " " : "") << name;
    return text.str();
  }();
  return list.c_str();
}

bool parse_variant(const std::string& name, Variant* out) {
  Variant variant;
  if (!read(name, &variant)) return false;
  *out = variant;
  return true;
}

}  // namespace tessera_exact
