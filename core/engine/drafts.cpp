#include "engine/drafts.h"

#include <algorithm>

#include "sched/look_up.h"

namespace tessera {

namespace {

bool greedy(const SamplingParams& sampling) { return sampling.temperature <= 0 || sampling.top_k == 1; }

}  // namespace

bool drawn_by_best(const SamplingParams& sampling, std::int32_t top_logprobs) {
  return greedy(sampling) && top_logprobs < 0 && sampling.logit_bias.empty() && sampling.presence_penalty == 0 &&
         sampling.frequency_penalty == 0 && sampling.repetition_penalty == 1;
}

DraftSource draft_source(Acceptance acceptance, const SchedulerLimits& limits, const SamplingParams& sampling,
                         const LoopParams& loops) {
  if (acceptance == Acceptance::exact || greedy(sampling) || !speculates(limits, loops)) return DraftSource::none;
  return limits.draft_loops == 0 ? DraftSource::looked_up : DraftSource::first_loops;
}

std::int32_t RoundDrafts::propose(const PlanSlice& slice, std::span<const float> logits, const SamplePoint& point,
                                  SampleScratch& scratch) {
  if (slice.candidates.empty()) drop();
  Kept next{point.position, {}};
  if (!sample_draft(logits, point, scratch, next.draft).ok()) return 0;
  const std::int32_t token = next.draft.token;
  if (source_ == DraftSource::first_loops) kept_.push_back(std::move(next));
  return token;
}

Result<Sampled> RoundDrafts::take(std::span<const float> logits, const SamplePoint& point, std::int32_t top_logprobs,
                                  SampleScratch& scratch) const {
  if (source_ == DraftSource::looked_up) {
    std::vector<std::int32_t> known(point.prompt.begin(), point.prompt.end());
    known.insert(known.end(), point.generated.begin(), point.generated.end());
    const auto next = look_up(known, 1);
    if (!next.empty()) return sample_with_draft(logits, point, point_mass(next[0]), top_logprobs, scratch);
  }
  const auto found =
      std::find_if(kept_.begin(), kept_.end(), [&](const Kept& kept) { return kept.position == point.position; });
  if (found != kept_.end()) return sample_with_draft(logits, point, found->draft, top_logprobs, scratch);
  return sample(logits, point.params, point.choice, point.position, point.prompt, point.generated, top_logprobs,
                scratch);
}

}  // namespace tessera
