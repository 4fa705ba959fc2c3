// What sparse decoding of looped models saves: one layer of decoded rows, four loops, beside the dense attention of the
// same run.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "bench/attention_bench.h"

namespace tessera {

struct SparseBenchOptions {
  AttentionGeometry geometry{.q_heads = 16, .kv_heads = 16, .head_dim = 128, .layers = 1, .layer = 0};  // Ouro-1.4B
  std::vector<std::int32_t> kv_heads{4, 16};
  std::vector<std::int32_t> contexts{512, 2048, 8192, 16384, 32768};
  std::vector<std::int32_t> rows{32};  // decoded at once, each with pages of its own
  std::int32_t rounds = 5;
};

struct SparseBenchRow {
  std::int32_t kv_heads = 0, rows = 0, context = 0;
  bool replayed = false;
  Spread dense{}, capture{}, consume{};  // microseconds of one layer; capture is dense attention and what it keeps
  Spread ratio{};                        // of four loops: (dense + capture + 2 consume) / (4 dense), round by round
  double dense_bytes = 0;                // K and V that dense attention reads
  struct {
    double mean = 0, least = 0;
  } mass{};                     // of all heads: the share of the attention that they kept, of noise
  std::int32_t list_pages = 0;  // that a row's index lists take (sdk/sparse_decode.h), in all layers
  std::string skipped{};
};

struct SparseBench {
  std::string plugin, device;
  double retention;
  Roof roof{};
  std::vector<SparseBenchRow> rows;

  /// Four loops at this retention where reading is all that counts: (2 + 2 r) / 4.
  double ideal() const { return (2 + 2 * retention) / 4; }
  /// The least measured context from which on sparse rows were never slower, however many there were; 0 = none. Where
  /// graphs were recorded they are what counts: serving replays them.
  std::int32_t crossover() const;
};

/// `config` names the strategy (loop_reference when it names none).
Result<SparseBench> bench_sparse(const Config& config, Registry& registry, const SparseBenchOptions& options);

}  // namespace tessera
