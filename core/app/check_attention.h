// tessera check attention: also a part of `check all`.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "app/common.h"
#include "bench/attention_check.h"

namespace tessera::app {

void add_check_attention(CLI::App& check, int& exit_code);

/// The configured variant alone with few fuzz cases.
Result<AttentionReport> check_attention_small(const Config& config, Registry& registry, std::uint64_t seed);

/// A table with a row a variant, failures, and the totals in one line.
std::string text_of(const AttentionReport& report);
nlohmann::json json_of(const AttentionReport& report);

}  // namespace tessera::app
