// How the tokens of one choice are drawn: as if nothing had been drafted, or by rejection against what drafted them.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "config/config.h"
#include "sample/rejection.h"
#include "sched/scheduler.h"

namespace tessera {

/// speculation.acceptance. `exact`: a candidate is confirmed when it is the token that the target draws anyway.
/// `rejection`: a token is drawn by rejection against the distribution that proposes its candidate.
enum class Acceptance { exact, rejection };

/// Of this configuration: exact where nothing is speculated.
Acceptance acceptance_of(const Config& config);

/// What proposes the token of a position, as a function of the tokens before it alone. So a token drawn against it does
/// not depend on how its round began, was cut short or was preempted: the round's candidates only guess it.
enum class DraftSource { none, looked_up, first_loops };

/// None for exact acceptance, for greedy requests and for those that no candidates are proposed for.
DraftSource draft_source(Acceptance acceptance, const SchedulerLimits& limits, const SamplingParams& sampling,
                         const LoopParams& loops);

/// Whether the token is the best of the row's own logits and nothing else of them is wanted.
bool drawn_by_best(const SamplingParams& sampling, std::int32_t top_logprobs);

/// Of one choice. Holds the distributions of one round at most: draft_tokens + 1 of them, 12 bytes for each token that
/// the request's cuts leave.
class RoundDrafts {
 public:
  explicit RoundDrafts(DraftSource source) : source_(source) {}

  /// The candidate that a draft slice's row gives for `point`. Logits without a best token draft anything: the
  /// verification judges.
  std::int32_t propose(const PlanSlice& slice, std::span<const float> logits, const SamplePoint& point,
                       SampleScratch& scratch);
  /// The token of `point`; fails as `sample` and `sample_with_draft` do.
  Result<Sampled> take(std::span<const float> logits, const SamplePoint& point, std::int32_t top_logprobs,
                       SampleScratch& scratch) const;
  /// Its round is over, or was preempted.
  void drop() { kept_.clear(); }

 private:
  struct Kept {
    std::uint32_t position;
    Draft draft;
  };
  DraftSource source_;
  std::vector<Kept> kept_;
};

}  // namespace tessera
