// What a device can do at most: f32 fused multiply-adds and memory reads, measured in the same run.
#pragma once
#include <string>

#include "config/config.h"
#include "registry/registry.h"
#include "tessera/sdk/backend.h"

namespace tessera {

struct Roof {
  int threads;              // of a CPU; 0 for another device
  double flops;             // f32, a fused multiply-add counts two; 0 = not known
  double bytes_per_second;  // reading more than any cache holds
};

/// A backend of the kind under test with room for next to nothing: for its roof, or what its driver holds.
Result<PluginPtr<sdk::Backend>> open_backend(const Config& config, Registry& registry);
/// Of the device a backend computes on. Takes about a second.
Roof measure_roof(sdk::Backend& backend);
/// Clocks and neighbours change: the better of two.
Roof better_of(const Roof& a, const Roof& b);
/// "roof of 2 threads: 310 GFLOP/s, 21.4 GB/s"; empty where it is not known.
std::string text_of(const Roof& roof);

}  // namespace tessera
