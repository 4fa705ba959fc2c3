// Rejection sampling: the target's token, most often the one that a draft distribution gave (docs/numerics.md,
// "Speculation").
#pragma once
#include <cstdint>
#include <span>

#include "base/status.h"
#include "sample/sampler.h"

namespace tessera {

/// A candidate and what it was drawn from.
struct Draft {
  std::int32_t token;
  Distribution distribution;
};

/// Draws a candidate for the point from a draft's logits, with the uniform and the cuts that `sample` has there.
Status sample_draft(std::span<const float> logits, const SamplePoint& point, SampleScratch& scratch, Draft& draft);

/// A candidate that nothing was drawn for: all of its distribution is on `token`.
Draft point_mass(std::int32_t token);

/// The candidate if u * q < p with u = `acceptance`, q and p its share of the draft's distribution and of `target`;
/// otherwise drawn with `residual` from max(p - q, 0). Over both uniforms and the draft's draw this is a draw from
/// `target`. Shares are compared as whole numbers, so a candidate that was drawn from the draft's distribution and
/// refused always leaves something; fails (internal) when nothing is left, for the candidate was not drawn from it.
Result<std::int32_t> accept_or_redraw(const Distribution& target, const Draft& draft, double acceptance,
                                      double residual, SampleScratch& scratch);

/// `sample` with a draft for the point: its token is what accept_or_redraw makes of the row's distribution. Logprobs
/// are the row's own, as of `sample`.
Result<Sampled> sample_with_draft(std::span<const float> logits, const SamplePoint& point, const Draft& draft,
                                  std::int32_t top_logprobs, SampleScratch& scratch);

}  // namespace tessera
