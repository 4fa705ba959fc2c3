// tessera bench attention.
#pragma once
#include <string>

#include "app/common.h"
#include "bench/attention_bench.h"

namespace tessera::app {

void add_bench_attention(CLI::App& bench, int& exit_code);

/// One page that needs nothing else: bars a shape, the table below.
std::string html_of(const AttentionBench& bench);

}  // namespace tessera::app
