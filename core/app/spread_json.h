// A spread of samples as programs read it.
#pragma once
#include <nlohmann/json.hpp>

#include "bench/attention_bench.h"

namespace tessera::app {

inline nlohmann::json spread_json(const Spread& spread) {
  return {{"median", spread.median}, {"low", spread.low}, {"high", spread.high}};
}

}  // namespace tessera::app
