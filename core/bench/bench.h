// Speeds of the layers of the engine, each beside its roof.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "config/config.h"
#include "engine/runner.h"
#include "model/spec.h"
#include "registry/registry.h"
#include "tessera/sdk/tensor.h"

namespace tessera {

struct BenchRow {
  std::string name;
  double median_ms, fastest_ms, slowest_ms;
  double rate;               // in `unit`
  std::string unit;          // "GFLOP/s", "GB/s"
  double tokens_per_second;  // 0 where it has no meaning
};

/// The 113 M geometry of the published peers: 12 layers, 768 wide, 12/3 heads of 64, 2048 MLP, 50304 vocabulary.
DecoderSpec bench_spec();
/// That model with random weights of one seed, the same on every device.
Result<std::unique_ptr<Runner>> open_random(const Config& config, Registry& registry, sdk::DType weights);

Result<std::vector<BenchRow>> bench_linear(const Config& config, Registry& registry, sdk::DType weights);
Result<std::vector<BenchRow>> bench_decode(const Config& config, Registry& registry, sdk::DType weights);
Result<std::vector<BenchRow>> bench_prefill(const Config& config, Registry& registry, sdk::DType weights);

}  // namespace tessera
