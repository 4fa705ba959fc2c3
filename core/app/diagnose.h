// tessera check packed --diagnose N.
#pragma once
#include "app/common.h"

namespace tessera::app {

/// Prints each first divergence and what explains it. The exit status: 1 when something beside attention does.
int diagnose_packed(const Config& config, Registry& registry, std::int32_t generations, std::uint64_t seed);

}  // namespace tessera::app
