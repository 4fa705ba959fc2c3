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
  std::int32_t prompts = 0;   // raw texts included
  std::int32_t answered = 0;  // of them, those that want an answer
  std::int32_t correct = 0;  // the greedy answer is the expected text exactly, or ends in time with the words asked for
  double nats = 0;  // over answer tokens, the end-of-answer token included, and tokens of raw texts; teacher forced
  std::int64_t answer_tokens = 0;
  double mean_loops = 1;  // of decoded rows
  // Share of the attention that sparse decoding kept, over captured rows, layers and heads; 1 when nothing was
  // captured.
  double mean_mass = 1, least_mass = 1;

  std::int64_t rounds = 0, round_tokens = 0, candidates = 0, confirmed = 0;  // of speculation, in the answers

  double accuracy() const { return answered == 0 ? 0 : static_cast<double>(correct) / answered; }
  double cross_entropy() const { return answer_tokens == 0 ? 0 : nats / static_cast<double>(answer_tokens); }
};

struct EvaluateOptions {
  std::int32_t limit = 0;      // prompts of each task; 0 = all
  std::int32_t max_loops = 0;  // of a looped model; 0 = all
  std::int32_t min_loops = 1;
  double exit_threshold = -1;    // -1 = the model's
  std::int32_t decode_tail = 3;  // last prompt tokens that are decoded: "<|im_start|>assistant" and a line end
};

/// Files of JSON lines. {"task", "prompt", "answer"}: prompts are already rendered (special tokens in them are tokens).
/// With "words" as well, any greedy answer is right that ends by itself within "max_tokens" tokens and holds them all.
/// {"task", "text"}: a raw text, of which every token but the first is scored and nothing is asked.
/// The last entry is the total, named "all".
Result<std::vector<TaskScore>> evaluate(const Config& config, Registry& registry, std::span<const std::string> files,
                                        const EvaluateOptions& options);

}  // namespace tessera
