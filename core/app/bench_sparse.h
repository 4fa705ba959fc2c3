// tessera bench sparse.
#pragma once
#include <CLI/CLI.hpp>

namespace tessera::app {

void add_bench_sparse(CLI::App& bench, int& exit_code);

}  // namespace tessera::app
