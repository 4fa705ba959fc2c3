#include "sample/sampler.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <utility>

#include "base/random.h"
#include "tessera/sdk/numerics.h"

namespace tessera {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

/// Ascending (key, id) pairs are logit descending, then id ascending; -0 ranks as +0, as it compares.
std::uint64_t rank_key(float logit, std::size_t token) {
  return (std::uint64_t{~sdk::rank_key(logit)} << 32) | static_cast<std::uint32_t>(token);
}

std::int32_t token_of(std::uint64_t key) { return static_cast<std::int32_t>(static_cast<std::uint32_t>(key)); }

/// exp((logit - max) / temperature); the best is exactly 1 even when it is +inf, and -inf is exactly 0.
double weight(float logit, float max, double temperature) {
  if (logit == max) return 1.0;
  if (logit == -kInfinity) return 0.0;
  const float shifted = logit - max;
  return sdk::exp_f32(static_cast<float>(static_cast<double>(shifted) / temperature));
}

/// Sorts keys that arrive with ids ascending: three stable counting passes over the 32 logit bits, because a full
/// comparison sort of a large vocabulary would cost more than the forward pass of a small model.
void sort_ranked(std::vector<std::uint64_t>& keys, std::vector<std::uint64_t>& spare) {
  constexpr std::size_t kComparisonLimit = 4096;
  if (keys.size() <= kComparisonLimit) {
    std::sort(keys.begin(), keys.end());
    return;
  }
  spare.resize(keys.size());
  for (const int shift : {32, 43, 54}) {
    std::uint32_t starts[2049] = {};
    for (const std::uint64_t key : keys) ++starts[((key >> shift) & 2047) + 1];
    for (int i = 0; i < 2048; ++i) starts[i + 1] += starts[i];
    for (const std::uint64_t key : keys) spare[starts[(key >> shift) & 2047]++] = key;
    keys.swap(spare);
  }
}

/// The `wanted` best of `logits` in canonical order (all of them when wanted is 0).
void rank(std::span<const float> logits, std::size_t wanted, SampleScratch& scratch) {
  std::vector<std::uint64_t>& ranked = scratch.ranked;
  ranked.resize(logits.size());
  for (std::size_t i = 0; i < logits.size(); ++i) ranked[i] = rank_key(logits[i], i);
  if (wanted == 0 || wanted >= ranked.size()) {
    sort_ranked(ranked, scratch.spare);
    return;
  }
  const auto end = ranked.begin() + static_cast<std::ptrdiff_t>(wanted);
  std::nth_element(ranked.begin(), end, ranked.end());
  ranked.resize(wanted);
  std::sort(ranked.begin(), ranked.end());
}

Status apply_penalties(const SamplingParams& params, std::span<const std::int32_t> prompt,
                       std::span<const std::int32_t> generated, SampleScratch& scratch) {
  const bool none =
      params.repetition_penalty == 1.0 && params.presence_penalty == 0.0 && params.frequency_penalty == 0.0;
  if (none) return {};
  const std::size_t vocabulary = scratch.logits.size();
  for (const auto history : {prompt, generated})
    for (const std::int32_t token : history)
      if (token < 0 || static_cast<std::size_t>(token) >= vocabulary)
        return fail(Code::invalid_argument, "history token {} is outside the vocabulary of {} tokens", token,
                    vocabulary);
  if (scratch.counts.size() < vocabulary) scratch.counts.resize(vocabulary, 0);
  // Bit 0: somewhere in the history. The rest: how often generated.
  for (const std::int32_t token : prompt) scratch.counts[static_cast<std::size_t>(token)] |= 1;
  for (const std::int32_t token : generated) {
    std::int32_t& count = scratch.counts[static_cast<std::size_t>(token)];
    count = (count | 1) + 2;
  }
  for (const auto history : {prompt, generated}) {
    for (const std::int32_t token : history) {
      const std::int32_t count = std::exchange(scratch.counts[static_cast<std::size_t>(token)], 0);
      if (count == 0) continue;  // seen earlier in this loop
      float& logit = scratch.logits[static_cast<std::size_t>(token)];
      const double repeated = logit > 0.0f ? logit / params.repetition_penalty : logit * params.repetition_penalty;
      const std::int32_t times = count >> 1;
      const double flat = times > 0 ? params.presence_penalty + params.frequency_penalty * times : 0.0;
      logit = static_cast<float>(repeated - flat);
    }
  }
  return {};
}

Status check_no_nan(std::span<const float> logits) {
  for (std::size_t i = 0; i < logits.size(); ++i)
    if (std::isnan(logits[i]))
      return fail(Code::internal, "the logit of token {} is NaN, so no token can be chosen from this row", i);
  return {};
}

Status prepare(std::span<const float> logits, const SamplingParams& params, std::span<const std::int32_t> prompt,
               std::span<const std::int32_t> generated, SampleScratch& scratch) {
  if (Status status = check_no_nan(logits); !status.ok()) return status;
  scratch.logits.assign(logits.begin(), logits.end());
  for (const sdk::LogitBias& bias : params.logit_bias) {
    if (bias.token < 0 || static_cast<std::size_t>(bias.token) >= logits.size())
      return fail(Code::invalid_argument, "logit_bias names token {}, outside the vocabulary of {} tokens", bias.token,
                  logits.size());
    scratch.logits[static_cast<std::size_t>(bias.token)] += bias.bias;
  }
  if (Status status = apply_penalties(params, prompt, generated, scratch); !status.ok()) return status;
  return check_no_nan(scratch.logits);  // an infinite bias against an infinite logit
}

/// Draws from scratch.ranked, best first, with the cuts of `params`.
std::int32_t draw(const SamplingParams& params, float max, double point, SampleScratch& scratch) {
  std::vector<double>& weights = scratch.weights;
  weights.resize(scratch.ranked.size());
  double total = 0.0;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    const float logit = scratch.logits[static_cast<std::size_t>(token_of(scratch.ranked[i]))];
    weights[i] = weight(logit, max, params.temperature);
    total += weights[i];
  }
  std::size_t kept = weights.size();
  if (params.top_p < 1.0) {
    const double wanted = params.top_p * total;
    double sum = 0.0;
    for (std::size_t i = 0; i < kept; ++i) {
      sum += weights[i];
      if (sum >= wanted) kept = i + 1;  // ends the loop: the smallest prefix, never empty
    }
  }
  while (kept > 1 && (weights[kept - 1] < params.min_p || weights[kept - 1] == 0.0)) --kept;  // the best weighs 1
  total = 0.0;
  for (std::size_t i = 0; i < kept; ++i) total += weights[i];
  const double target = point * total;
  double sum = 0.0;
  for (std::size_t i = 0; i + 1 < kept; ++i) {
    sum += weights[i];
    if (sum > target) return token_of(scratch.ranked[i]);
  }
  return token_of(scratch.ranked[kept - 1]);
}

void add_logprobs(std::span<const float> logits, std::int32_t top_logprobs, SampleScratch& scratch, Sampled& sampled) {
  const float max = *std::max_element(logits.begin(), logits.end());
  double total = 0.0;
  for (const float logit : logits) total += weight(logit, max, 1.0);
  const double log_total = std::log(total);
  const auto logprob = [&](std::int32_t token) {
    const float logit = logits[static_cast<std::size_t>(token)];
    const double shifted = logit == max ? 0.0 : static_cast<double>(logit - max);
    return static_cast<float>(shifted - log_total);
  };
  sampled.logprob = logprob(sampled.token);
  if (top_logprobs == 0) return;
  rank(logits, static_cast<std::size_t>(top_logprobs), scratch);
  sampled.top.reserve(scratch.ranked.size());
  for (const std::uint64_t key : scratch.ranked) sampled.top.push_back({token_of(key), logprob(token_of(key))});
}

}  // namespace

double uniform(std::uint64_t seed, std::uint32_t choice, std::uint32_t position, DrawPurpose purpose) {
  const auto words = philox({static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)},
                            {position, choice, static_cast<std::uint32_t>(purpose), 0});
  const std::uint64_t bits = (std::uint64_t{words[0]} << 32) | words[1];
  return static_cast<double>(bits >> 11) * 0x1p-53;
}

Result<Sampled> sample(std::span<const float> logits, const SamplingParams& params, std::uint32_t choice,
                       std::uint32_t position, std::span<const std::int32_t> prompt,
                       std::span<const std::int32_t> generated, std::int32_t top_logprobs, SampleScratch& scratch) {
  if (logits.empty()) return fail(Code::internal, "a row of logits is empty, so no token can be chosen from it");
  if (Status status = prepare(logits, params, prompt, generated, scratch); !status.ok()) return status;
  const auto best = std::max_element(scratch.logits.begin(), scratch.logits.end());  // the first of equals
  if (*best == -kInfinity)
    return fail(Code::internal, "all {} logits are -inf, so no token can be chosen from this row", logits.size());

  Sampled sampled{};
  sampled.token = static_cast<std::int32_t>(best - scratch.logits.begin());
  sampled.logprob = std::numeric_limits<float>::quiet_NaN();
  if (params.temperature > 0.0 && params.top_k != 1) {
    rank(scratch.logits, params.top_k > 0 ? static_cast<std::size_t>(params.top_k) : 0, scratch);
    sampled.token = draw(params, *best, uniform(params.seed, choice, position, DrawPurpose::token), scratch);
  }
  if (top_logprobs >= 0) add_logprobs(logits, top_logprobs, scratch, sampled);
  return sampled;
}

}  // namespace tessera
