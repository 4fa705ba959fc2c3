// What the parts of `tessera plugins` share.
#pragma once
#include <cstdint>
#include <string>

#include "app/common.h"

namespace tessera::app {

/// "batch_invariant, portable_bits", or "none".
std::string capability_names(std::uint64_t bits);

void add_plugins_check(CLI::App& plugins, int& exit_code);

}  // namespace tessera::app
