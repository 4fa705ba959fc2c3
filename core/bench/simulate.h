// Requests run through scheduler, pool and model without threads, recording every logit that was sampled from.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "engine/drafts.h"
#include "engine/runner.h"
#include "request/request.h"
#include "sched/scheduler.h"

namespace tessera {

struct SimulatedRequest {
  std::vector<std::int32_t> prompt;
  SamplingParams sampling;
  std::int32_t max_tokens = 1;
  std::int32_t arrive_step = 0;   // submitted before this step
  std::int32_t cancel_step = -1;  // cancelled before this step; -1 = never
  LoopParams loops{};
  std::vector<std::int32_t> forced{};  // when given, what is "sampled", whatever the logits say
  std::int32_t stop_token = -1;        // ends the answer
};

struct SimulationOptions {
  SchedulerLimits limits;
  std::int32_t pages = 0;          // of the runner's pool; 0 = all
  std::uint64_t page_seed = 0;     // 0 = ascending ids of KV and list pages, else a permutation
  std::uint64_t packing_seed = 0;  // 0 = the plan's order, else slices are shuffled each step
  std::uint64_t draft_noise = 0;   // 0 = none, else a third of the drafted candidates are wrong
  Acceptance acceptance = Acceptance::exact;
  bool round_logits = true;  // of rounds on the device: wait for each round and look at its logits
};

struct Trace {
  std::vector<std::int32_t> tokens;
  std::vector<float> logits;  // [tokens][vocab]; zeros where they stayed on the device
  std::vector<bool> seen;     // [tokens] whether they did not
};

struct Simulation {
  std::vector<Trace> traces;  // one for each request; short for a cancelled one
  SchedulerStats stats;
  std::vector<float> masses;  // of captured rows that a token was sampled from, where the runner reports them
  std::int32_t references_left = 0, list_pages_left = 0;
  std::int32_t pages_left_in_use = 0;
};

Result<Simulation> simulate(Runner& runner, std::span<const SimulatedRequest> requests,
                            const SimulationOptions& options);

}  // namespace tessera
