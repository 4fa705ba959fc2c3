#include "model/manifest.h"

#include <algorithm>
#include <fstream>

namespace tessera {
namespace {

constexpr std::size_t kHexDigits = 64;
constexpr int kMostLines = 10'000;

bool is_hex(char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); }

/// "<64 hex digits>  <name>", or " *<name>" for binary mode.
bool split(const std::string& line, std::string& hex, std::string& name) {
  if (line.size() < kHexDigits + 3 || line[kHexDigits] != ' ') return false;
  if (line[kHexDigits + 1] != ' ' && line[kHexDigits + 1] != '*') return false;
  hex = line.substr(0, kHexDigits), name = line.substr(kHexDigits + 2);
  return std::all_of(hex.begin(), hex.end(), is_hex);
}

}  // namespace

Status check_manifest(const std::filesystem::path& model_dir, const std::map<std::string, Digest>& files) {
  const std::filesystem::path path = model_dir / "SHA256SUMS";
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) return {};
  std::ifstream in(path);
  std::map<std::string, std::string> listed;
  std::string line, hex, name;
  for (int number = 1; std::getline(in, line); ++number) {
    if (line.empty()) continue;
    if (number > kMostLines || !split(line, hex, name))
      return fail(Code::invalid_argument, "{}:{}: no line of sha256sum: wanted 64 hex digits, two blanks and a name",
                  path.string(), number);
    listed[name] = hex;
  }
  for (const auto& [file, digest] : files) {
    const auto entry = listed.find(file);
    if (entry == listed.end())
      return fail(Code::invalid_argument, "{}: does not list {}; add its hash, or remove the manifest", path.string(),
                  file);
    if (entry->second != to_hex(digest))
      return fail(Code::invalid_argument,
                  "{}: its SHA-256 is {}, but {} says {}; the file is damaged or another one: fetch it again",
                  (model_dir / file).string(), to_hex(digest), path.string(), entry->second);
  }
  return {};
}

}  // namespace tessera
