// How fast attention variants are: one layer, alternating rounds, beside a baseline of the same run.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "bench/attention_data.h"
#include "bench/roof.h"
#include "config/config.h"
#include "registry/registry.h"
#include "tessera/sdk/attention.h"

namespace tessera {

struct BenchShape {
  std::string name;
  std::vector<RowRange> slices;
};

/// The 25 published shapes, then decode rows at histories to 32,768; with `prefill`, whole prompts to 32,768 too.
std::vector<BenchShape> attention_shapes(bool prefill);

struct AttentionBenchOptions {
  std::vector<std::string> variants;  // "reference", or one of the plugin's; the first is the baseline; empty = usual
  std::vector<std::string> shapes;    // parts of names; empty = all
  std::int32_t rounds = 5;
  bool prefill = false;
};

struct Spread {
  double median, low, high;
};

/// Sorts its own copy; never empty.
Spread spread_of(std::vector<double> values);

struct AttentionTiming {
  std::string variant;
  bool replayed;                          // from a recorded graph; else launched one by one
  std::int64_t runs;                      // in one sample
  Spread microseconds;                    // of one run
  Spread ratio;                           // baseline's time over this one's, round by round, launched the same way
  double of_roof;                         // share of the nearer ceiling; 0 = ceiling unknown
  std::vector<sdk::KernelFacts> kernels;  // of an eager timing, where the plugin names them
};

struct AttentionBenchRow {
  std::string shape;
  std::int64_t rows, pairs;
  double flops, bytes;  // 4 * head_dim a (row, head, key); K and V once a slice, q and output once
  std::vector<AttentionTiming> timings;
  std::string skipped;  // why there are none
};

struct AttentionBench {
  std::string plugin, device;
  AttentionGeometry geometry;
  Roof roof{};  // zeros where it is not measured
  std::vector<AttentionBenchRow> rows;
};

Result<AttentionBench> bench_attention(const Config& config, Registry& registry, const AttentionBenchOptions& options);

}  // namespace tessera
