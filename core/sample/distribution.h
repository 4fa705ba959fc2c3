// From one row of logits to what its token may be: bias, penalties, temperature and cuts (docs/numerics.md,
// "Sampling").
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"
#include "request/request.h"

namespace tessera {

/// Tokens that may be drawn, in canonical order, and the running f64 sums of their weights; sums[0] is 1, because the
/// best weighs 1. A token's share, its sum less the one before it, is exact in f64 and a whole multiple of 2^-52: so a
/// token is drawn with exactly its share of sums.back().
struct Distribution {
  std::vector<std::int32_t> tokens;
  std::vector<double> sums;

  double share(std::size_t index) const { return index == 0 ? sums[0] : sums[index] - sums[index - 1]; }
};

/// Whose token, and where. The spans outlive the call.
struct SamplePoint {
  const SamplingParams& params;
  std::uint32_t choice;
  std::uint32_t position;                   // absolute, that the token will take
  std::span<const std::int32_t> prompt;     // with `generated`: of the penalties
  std::span<const std::int32_t> generated;  // in this choice, so far
};

/// Scratch that grows to the vocabulary once; one for each engine thread. What it holds between calls is no contract.
struct SampleScratch {
  std::vector<float> logits;          // after bias and penalties
  std::vector<std::int32_t> counts;   // all zero between calls
  std::vector<std::uint64_t> ranked;  // (sort key of the logit, id): ascending integers are the canonical order
  std::vector<std::uint64_t> spare;
  std::vector<double> weights;  // of ranked, unnormalized
  Distribution distribution;
  std::vector<std::uint64_t> units;  // of a draft's tokens, by id; all zero between calls
  std::vector<double> residual;      // running sums
};

/// What the point's token is drawn from; at temperature 0 or top-k 1 the best token alone. Fails (internal) when a
/// logit is NaN, naming the first such id, or when every logit is -inf or there is none; (invalid_argument) when a bias
/// or a history token lies outside the vocabulary.
Status distribute(std::span<const float> logits, const SamplePoint& point, SampleScratch& scratch,
                  Distribution& distribution);

/// The first token whose sum exceeds `uniform`, in [0, 1), times the whole.
std::int32_t draw(const Distribution& distribution, double uniform);

/// exp((logit - max) / temperature); the best is exactly 1 even when it is +inf, and -inf is exactly 0.
double weight(float logit, float max, double temperature);

/// scratch.ranked becomes the `wanted` best of `logits` in canonical order (all of them when wanted is 0).
void rank(std::span<const float> logits, std::size_t wanted, SampleScratch& scratch);

/// The id of an element of scratch.ranked.
inline std::int32_t token_of(std::uint64_t key) { return static_cast<std::int32_t>(static_cast<std::uint32_t>(key)); }

}  // namespace tessera
