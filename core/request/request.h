// A request as the engine sees it: plain data, already tokenized.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "tessera/sdk/frontend.h"

namespace tessera {

/// Order of operations: logit bias, penalties, temperature, top-k, top-p, min-p, draw (docs/numerics.md, "Sampling").
struct SamplingParams {
  double temperature = 1.0;
  std::int32_t top_k = 0;
  double top_p = 1.0;
  double min_p = 0.0;
  double presence_penalty = 0.0;
  double frequency_penalty = 0.0;
  double repetition_penalty = 1.0;
  std::vector<sdk::LogitBias> logit_bias;
  std::uint64_t seed = 0;
};

/// How many loops of a looped model the rows of a request run (docs/numerics.md, "Loops"). A plain model has one loop.
struct LoopParams {
  static constexpr std::int32_t kNever = 1 << 30;
  std::int32_t max = 1;      // every row of the prompt runs these; a decoded row no more
  std::int32_t min = 1;      // a decoded row runs at least these
  float exit_threshold = 1;  // a decoded row stops once its summed exit probability reaches this; from 1 on never
  std::int32_t sparse_from = kNever;  // decoded rows from this position on are sparse (docs/numerics.md)
  std::int32_t decode_tail = 0;       // last tokens of the prompt that count as decoded rows
};

struct Request {
  std::vector<std::int32_t> prompt;  // never empty
  SamplingParams sampling;
  std::int32_t max_tokens = 0;  // resolved: at least 1, prompt + max_tokens <= max_context
  std::int32_t num_choices = 1;
  std::vector<std::string> stops;
  std::int32_t top_logprobs = -1;
  bool ignore_eos = false;
  LoopParams loops;
};

}  // namespace tessera
