// What this machine can do at most: f32 fused multiply-adds and memory reads, measured in the same run.
#pragma once

namespace tessera {

struct Roof {
  int threads;
  double flops;             // f32, a fused multiply-add counts two
  double bytes_per_second;  // reading 256 MiB over and over
};

/// Takes about a second.
Roof measure_roof(int threads);

}  // namespace tessera
