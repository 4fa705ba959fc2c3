// The part of tessera bench loops that submits many requests at once.
#pragma once
#include <string>

#include "bench/burst_bench.h"

namespace tessera::app {

/// Prints the rows, writes them to `json` when it names a file, then judges them: the exit status.
int run_burst(const Config& config, const BurstOptions& options, const std::string& json);

}  // namespace tessera::app
