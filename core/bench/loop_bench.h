// Decoded tokens a second of a looped model, end to end: every kernel of every pass, at long histories, with and
// without sparse decoding and speculation.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "bench/attention_bench.h"
#include "bench/loop_model.h"
#include "config/config.h"
#include "registry/registry.h"

namespace tessera {

/// Sequences decoded together, each seeing `context` positions.
struct LoopShape {
  std::int32_t sequences, context;
};

struct LoopBenchOptions {
  std::vector<LoopShape> shapes{{2, 32768}, {4, 16384}, {8, 1024}};
  LoopGeometry geometry;
  std::int32_t draft_tokens = 3, draft_loops = 2;
  double tokens_per_round = 3.4;  // what a round is taken to give: random weights confirm next to nothing
  std::int32_t rounds = 5;
};

struct LoopBenchRow {
  LoopShape shape;
  bool sparse, speculative, graphs;
  bool in_flight;       // two rounds at a time, which the device draws for
  Spread milliseconds;  // of one token of every sequence, or of one round
  double tokens_per_second;
  double bytes;  // weights and K and V that it reads at least
};

struct LoopBench {
  std::string plugin, device;
  double retention, tokens_per_round;
  Roof roof{};
  std::vector<LoopBenchRow> rows;
};

/// With random bf16 weights, keys and values.
Result<LoopBench> bench_loops(const Config& config, Registry& registry, const LoopBenchOptions& options);

}  // namespace tessera
