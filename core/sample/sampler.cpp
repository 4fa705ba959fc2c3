#include "sample/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/random.h"

namespace tessera {

double uniform(std::uint64_t seed, std::uint32_t choice, std::uint32_t position, DrawPurpose purpose) {
  const auto words = philox({static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)},
                            {position, choice, static_cast<std::uint32_t>(purpose), 0});
  const std::uint64_t bits = (std::uint64_t{words[0]} << 32) | words[1];
  return static_cast<double>(bits >> 11) * 0x1p-53;
}

Sampled with_logprobs(std::int32_t token, std::span<const float> logits, std::int32_t top_logprobs,
                      SampleScratch& scratch) {
  Sampled sampled{token, std::numeric_limits<float>::quiet_NaN(), {}};
  if (top_logprobs < 0) return sampled;
  const float max = *std::max_element(logits.begin(), logits.end());
  double total = 0.0;
  for (const float logit : logits) total += weight(logit, max, 1.0);
  const double log_total = std::log(total);
  const auto logprob = [&](std::int32_t id) {
    const float logit = logits[static_cast<std::size_t>(id)];
    const double shifted = logit == max ? 0.0 : static_cast<double>(logit - max);
    return static_cast<float>(shifted - log_total);
  };
  sampled.logprob = logprob(token);
  if (top_logprobs == 0) return sampled;
  rank(logits, static_cast<std::size_t>(top_logprobs), scratch);
  sampled.top.reserve(scratch.ranked.size());
  for (const std::uint64_t key : scratch.ranked) sampled.top.push_back({token_of(key), logprob(token_of(key))});
  return sampled;
}

Result<Sampled> sample(std::span<const float> logits, const SamplingParams& params, std::uint32_t choice,
                       std::uint32_t position, std::span<const std::int32_t> prompt,
                       std::span<const std::int32_t> generated, std::int32_t top_logprobs, SampleScratch& scratch) {
  const SamplePoint point{params, choice, position, prompt, generated};
  TESSERA_TRY(distribute(logits, point, scratch, scratch.distribution));
  const std::int32_t token = draw(scratch.distribution, uniform(params.seed, choice, position, DrawPurpose::token));
  return with_logprobs(token, logits, top_logprobs, scratch);
}

}  // namespace tessera
