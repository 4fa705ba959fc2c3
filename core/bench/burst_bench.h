// Many requests at once through the engine: whether it lives on what it claimed at load, and how long each one waits.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "bench/loop_model.h"
#include "config/config.h"
#include "registry/registry.h"

namespace tessera {

/// All submitted before the first step.
struct BurstShape {
  std::int32_t requests, prompt;  // tokens of each prompt
};

struct BurstOptions {
  std::vector<BurstShape> shapes{{64, 256}};
  LoopGeometry geometry;
  std::vector<std::string> retentions{"1", "0.1"};  // beside dense decoding
  std::int32_t answer = 16;                         // tokens of each
  std::int32_t draft_tokens = 3, draft_loops = 2;
  std::int32_t rounds = 5;  // measured bursts, each of prompts of its own
};

/// Device memory in bytes. Of a CPU it is what the process holds: what others hold comes and goes.
struct BurstMemory {
  std::int64_t weights = 0, kv = 0;  // by their own count
  std::int64_t loaded = 0;           // what loading took: these, references, workspaces, activations
  std::int64_t warm_up = 0;          // taken by a burst of few tokens before the measured ones ...
  std::int64_t grown = 0;            // at most at any step of the measured ones, beyond all that
  std::int64_t warm_up_allowed = 0;  // ... for the code of kernels, which drivers load at their first launch
  std::int64_t grown_allowed = 0;    // what was set aside for graphs; on a CPU what the host keeps of answers
};

/// From a request's submission to its first token, in milliseconds, over all rounds.
struct BurstWaits {
  double p50, p95, most;
};

struct BurstRow {
  BurstShape shape{};
  std::string retention;              // empty: dense decoding
  std::int32_t rounds_in_flight = 0;  // of speculation: 0 = none, 1 = rounds in steps, 2 = on the device
  std::int32_t rounds = 0;
  std::int64_t tokens = 0;  // of all answers
  double seconds = 0;       // of all rounds, from the first submission to the last event
  BurstWaits first_token{};
  BurstMemory memory{};
  std::int32_t reference_slots = 0, reference_high_water = 0, references_left = 0;
  std::int32_t list_pages = 0, list_pages_high_water = 0, list_pages_left = 0;
  std::int32_t pages = 0, pages_left = 0;
  std::int64_t preemptions = 0, device_rounds = 0;
  std::int32_t unfinished = 0;     // requests without their whole answer
  std::string reason;              // of one of them
  std::int32_t other_answers = 0;  // that differ where the arithmetic is the same: see bench_bursts

  /// "sparse, in flight", ...
  std::string mode() const;
  double tokens_per_second() const { return seconds > 0 ? static_cast<double>(tokens) / seconds : 0; }
};

/// What a burst must not do: leave a request without its answer, take memory after load, keep pages, reference slots or
/// list pages, or change an answer. The first of these as one sentence.
Status judge(const BurstRow& row);

/// Prompt `index` of the published probe: 1 + (137 j + 53 index) mod 49000, or mod what a smaller vocabulary has.
std::vector<std::int32_t> burst_prompt(std::int32_t index, std::int32_t length, std::int32_t vocab);

/// The smallest value that at least `share` of them do not exceed; never empty.
double percentile(std::vector<double> values, double share);

struct BurstBench {
  std::string plugin, device;
  std::vector<BurstRow> rows;
};

/// Of each shape dense decoding, then each retention; each plain, then speculative, then in flight, with a model
/// loaded for it alone. Greedy answers are compared token by token: retention 1 with dense decoding, speculative ones
/// with plain ones.
Result<BurstBench> bench_bursts(const Config& config, Registry& registry, const BurstOptions& options);

}  // namespace tessera
