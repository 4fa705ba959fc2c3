// Teacher-forced scoring: logits at every position of a token list.
#pragma once
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "engine/runner.h"

namespace tessera {

/// Runs `tokens` through the model in chunks of the step limit, on pages 0, 1, ... of the pool, and calls
/// visit(position, logits of the token after it) in order. The runner needs `all_logits`. Of a looped model every
/// position runs `loops` loops (0 = all), `exits` gets the exit probability after them, where there is a gate, and
/// `states` the hidden states after each.
Status score(Runner& runner, std::span<const std::int32_t> tokens,
             const std::function<void(std::int32_t, std::span<const float>)>& visit, std::int32_t loops = 0,
             std::vector<float>* exits = nullptr, LoopStates* states = nullptr);

/// -log of the softmax probability of `token`, in f64.
double negative_log_likelihood(std::span<const float> logits, std::int32_t token);

}  // namespace tessera
