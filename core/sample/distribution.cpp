#include "sample/distribution.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "tessera/sdk/numerics.h"

namespace tessera {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

/// Ascending (key, id) pairs are logit descending, then id ascending; -0 ranks as +0, as it compares.
std::uint64_t rank_key(float logit, std::size_t token) {
  return (std::uint64_t{~sdk::rank_key(logit)} << 32) | static_cast<std::uint32_t>(token);
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

Status apply_penalties(const SamplePoint& point, SampleScratch& scratch) {
  const SamplingParams& params = point.params;
  const bool none =
      params.repetition_penalty == 1.0 && params.presence_penalty == 0.0 && params.frequency_penalty == 0.0;
  if (none) return {};
  const std::size_t vocabulary = scratch.logits.size();
  for (const auto history : {point.prompt, point.generated})
    for (const std::int32_t token : history)
      if (token < 0 || static_cast<std::size_t>(token) >= vocabulary)
        return fail(Code::invalid_argument, "history token {} is outside the vocabulary of {} tokens", token,
                    vocabulary);
  if (scratch.counts.size() < vocabulary) scratch.counts.resize(vocabulary, 0);
  // Bit 0: somewhere in the history. The rest: how often generated.
  for (const std::int32_t token : point.prompt) scratch.counts[static_cast<std::size_t>(token)] |= 1;
  for (const std::int32_t token : point.generated) {
    std::int32_t& count = scratch.counts[static_cast<std::size_t>(token)];
    count = (count | 1) + 2;
  }
  for (const auto history : {point.prompt, point.generated}) {
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

Status prepare(std::span<const float> logits, const SamplePoint& point, SampleScratch& scratch) {
  if (Status status = check_no_nan(logits); !status.ok()) return status;
  scratch.logits.assign(logits.begin(), logits.end());
  for (const sdk::LogitBias& bias : point.params.logit_bias) {
    if (bias.token < 0 || static_cast<std::size_t>(bias.token) >= logits.size())
      return fail(Code::invalid_argument, "logit_bias names token {}, outside the vocabulary of {} tokens", bias.token,
                  logits.size());
    scratch.logits[static_cast<std::size_t>(bias.token)] += bias.bias;
  }
  if (Status status = apply_penalties(point, scratch); !status.ok()) return status;
  return check_no_nan(scratch.logits);  // an infinite bias against an infinite logit
}

/// The cuts of `params` on scratch.ranked, best first.
void cut(const SamplingParams& params, float max, SampleScratch& scratch, Distribution& distribution) {
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
  distribution.tokens.resize(kept);
  distribution.sums.resize(kept);
  double sum = 0.0;
  for (std::size_t i = 0; i < kept; ++i) {
    sum += weights[i];
    distribution.tokens[i] = token_of(scratch.ranked[i]);
    distribution.sums[i] = sum;
  }
}

}  // namespace

double weight(float logit, float max, double temperature) {
  if (logit == max) return 1.0;
  if (logit == -kInfinity) return 0.0;
  const float shifted = logit - max;
  return sdk::exp_f32(static_cast<float>(static_cast<double>(shifted) / temperature));
}

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

Status distribute(std::span<const float> logits, const SamplePoint& point, SampleScratch& scratch,
                  Distribution& distribution) {
  if (logits.empty()) return fail(Code::internal, "a row of logits is empty, so no token can be chosen from it");
  TESSERA_TRY(prepare(logits, point, scratch));
  const auto best = std::max_element(scratch.logits.begin(), scratch.logits.end());  // the first of equals
  if (*best == -kInfinity)
    return fail(Code::internal, "all {} logits are -inf, so no token can be chosen from this row", logits.size());
  const SamplingParams& params = point.params;
  if (params.temperature <= 0.0 || params.top_k == 1) {
    distribution.tokens.assign(1, static_cast<std::int32_t>(best - scratch.logits.begin()));
    distribution.sums.assign(1, 1.0);
    return {};
  }
  rank(scratch.logits, params.top_k > 0 ? static_cast<std::size_t>(params.top_k) : 0, scratch);
  cut(params, *best, scratch, distribution);
  return {};
}

std::int32_t draw(const Distribution& distribution, double uniform) {
  const std::vector<double>& sums = distribution.sums;
  const auto found = std::upper_bound(sums.begin(), sums.end() - 1, uniform * sums.back());
  return distribution.tokens[static_cast<std::size_t>(found - sums.begin())];
}

}  // namespace tessera
