// Where a seeded answer first differs under another attention, and whether the attention's rounding explains it.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "config/config.h"
#include "registry/registry.h"

namespace tessera {

struct DiagnoseOptions {
  std::int32_t generations = 16;
  std::int32_t prompt = 64;  // random tokens
  std::int32_t max_tokens = 64;
  double temperature = 0.8;
  std::int32_t top_k = 500;
  std::uint64_t seed = 20260908;
};

/// A token that one of the two drew, as both see it.
struct DrawnToken {
  std::int32_t token;
  std::int32_t reference_rank, variant_rank;  // from 0, canonical order
  float reference_logit, variant_logit;
};

/// The first step of one generation at which the two drew different tokens from the same history and uniform.
struct Divergence {
  std::int32_t generation;
  std::int32_t step;  // from 0
  double uniform;
  DrawnToken reference, variant;
  double largest_logit_difference;  // at that step
  std::int32_t only_in_one;         // tokens in one top-k and not in the other
  bool logits_differ;               // at that step
  bool differed_before;             // at an earlier step of the same generation
  /// Rounding moved the logits and both drew from the same candidates; else something beside attention is at work.
  bool drift_explains() const { return logits_differ && only_in_one == 0; }
  std::string verdict() const;
};

struct Diagnosis {
  std::string plugin;
  std::int32_t generations = 0;
  std::int64_t steps = 0;  // compared, up to each divergence
  std::int64_t steps_with_other_logits = 0;
  double largest_logit_difference = 0;  // over all of them
  std::vector<Divergence> divergences;
};

/// Both models read the reference's tokens (teacher forcing); a generation ends at its first divergence.
Result<Diagnosis> diagnose(const Config& config, Registry& registry, const DiagnoseOptions& options);

}  // namespace tessera
