// Hashes of reference outputs in a file: what one machine or device computed, another must compute too.
#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "base/status.h"
#include "bench/attention_check.h"

namespace tessera {

struct GoldenResult {
  std::string device;  // of the file
  std::int64_t compared = 0;
  std::vector<std::string> differing;  // cases
  std::int64_t absent = 0;             // cases run that the file does not have
};

Status write_golden(const AttentionReport& report, const std::filesystem::path& path);
/// Refuses a file made from another seed: its cases have other contents.
Result<GoldenResult> compare_golden(const AttentionReport& report, const std::filesystem::path& path);

}  // namespace tessera
