// From one row of logits to one token (docs/numerics.md, "Sampling").
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"
#include "sample/distribution.h"

namespace tessera {

/// What a draw is for: part of the counter, so that no two uses share a uniform.
enum class DrawPurpose : std::uint32_t { token = 0, acceptance = 1, exit = 2, residual = 3 };

/// The uniform in [0, 1) for this place of this request: a function of its arguments alone (Philox4x32-10).
double uniform(std::uint64_t seed, std::uint32_t choice, std::uint32_t position, DrawPurpose purpose);

struct RankedToken {
  std::int32_t token;
  float logprob;
};

struct Sampled {
  std::int32_t token;
  float logprob;                 // of the model's own distribution; NaN when top_logprobs < 0
  std::vector<RankedToken> top;  // the top_logprobs best, canonical order
};

/// The token with its logprobs in the model's own distribution, before bias, penalties and cuts.
Sampled with_logprobs(std::int32_t token, std::span<const float> logits, std::int32_t top_logprobs,
                      SampleScratch& scratch);

/// `position` is the absolute position the token will take. `prompt` and `generated` feed the penalties.
/// Temperature 0 takes the best token after bias and penalties. Fails as `distribute` does.
Result<Sampled> sample(std::span<const float> logits, const SamplingParams& params, std::uint32_t choice,
                       std::uint32_t position, std::span<const std::int32_t> prompt,
                       std::span<const std::int32_t> generated, std::int32_t top_logprobs, SampleScratch& scratch);

}  // namespace tessera
