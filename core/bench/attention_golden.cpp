#include "bench/attention_golden.h"

#include <fstream>
#include <nlohmann/json.hpp>

namespace tessera {

Status write_golden(const AttentionReport& report, const std::filesystem::path& path) {
  std::ofstream out(path);
  const nlohmann::json json{{"seed", report.seed}, {"device", report.device}, {"cases", report.hashes}};
  out << json.dump(1) << '\n';
  out.close();
  return out ? Status{} : fail(Code::not_found, "{}: cannot be written", path.string());
}

Result<GoldenResult> compare_golden(const AttentionReport& report, const std::filesystem::path& path) {
  std::ifstream in(path);
  if (!in) return fail(Code::not_found, "{}: there is no such file; write it with --write-golden", path.string());
  const auto json = nlohmann::json::parse(in, nullptr, false);
  if (!json.is_object() || !json.contains("seed") || !json["seed"].is_number_unsigned() || !json.contains("cases") ||
      !json["cases"].is_object())
    return fail(Code::invalid_argument, "{}: is no file of --write-golden", path.string());
  if (json["seed"] != report.seed)
    return fail(Code::invalid_argument, "{}: was made from seed {} but this run from seed {}; use --seed {}",
                path.string(), json["seed"].get<std::uint64_t>(), report.seed, json["seed"].get<std::uint64_t>());
  GoldenResult result;
  result.device = json.value("device", "");
  for (const auto& [name, hash] : report.hashes) {
    const auto found = json["cases"].find(name);
    if (found == json["cases"].end()) {
      ++result.absent;
      continue;
    }
    ++result.compared;
    if (*found != hash) result.differing.push_back(name);
  }
  return result;
}

}  // namespace tessera
