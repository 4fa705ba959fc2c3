// Accuracy and cross-entropy on held-out prompts.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "config/config.h"
#include "registry/registry.h"

namespace tessera {

struct TaskScore {
  std::string name;
  std::int32_t prompts = 0;
  std::int32_t correct = 0;  // greedy answer equals the expected text exactly
  double nats = 0;           // over answer tokens, the end-of-answer token included, teacher forced
  std::int64_t answer_tokens = 0;
  double mean_loops = 1;  // of decoded rows
  // Share of the attention that sparse decoding kept, over captured rows, layers and heads; 1 when nothing was
  // captured.
  double mean_mass = 1, least_mass = 1;

  std::int64_t rounds = 0, round_tokens = 0, candidates = 0, confirmed = 0;  // of speculation, in the answers

  double accuracy() const { return prompts == 0 ? 0 : static_cast<double>(correct) / prompts; }
  double cross_entropy() const { return answer_tokens == 0 ? 0 : nats / static_cast<double>(answer_tokens); }
};

struct EvaluateOptions {
  std::int32_t limit = 0;      // prompts of each task; 0 = all
  std::int32_t max_loops = 0;  // of a looped model; 0 = all
  std::int32_t min_loops = 1;
  double exit_threshold = -1;    // -1 = the model's
  std::int32_t decode_tail = 3;  // last prompt tokens that are decoded: "<|im_start|>assistant" and a line end
};

/// Files of JSON lines {"task", "prompt", "answer"}; prompts are already rendered (special tokens in them are tokens).
/// The last entry is the total, named "all".
Result<std::vector<TaskScore>> evaluate(const Config& config, Registry& registry, std::span<const std::string> files,
                                        const EvaluateOptions& options);

}  // namespace tessera
