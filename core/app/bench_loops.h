// tessera bench loops.
#pragma once
#include <CLI/CLI.hpp>

namespace tessera::app {

void add_bench_loops(CLI::App& bench, int& exit_code);

}  // namespace tessera::app
