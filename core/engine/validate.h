// What a request must look like before it may wait. One sentence for each mistake.
#pragma once
#include <cstdint>

#include "base/status.h"
#include "request/request.h"

namespace tessera {

inline constexpr std::int32_t kMaxChoices = 16;
inline constexpr std::int32_t kMaxTopLogprobs = 20;
inline constexpr std::size_t kMaxStops = 16;
inline constexpr std::size_t kMaxStopBytes = 512;

struct RequestBounds {
  std::int32_t vocab;
  std::int32_t max_context;
  std::int32_t loops = 1;  // of the model
  double model_exit_threshold = 1;
  std::int32_t sparse_from = LoopParams::kNever;  // position of the first decoded row that may be sparse
};

/// Everything that can be judged without tokenizing.
Status validate(const sdk::RequestView& view, const RequestBounds& bounds);

/// What a request asks of a looped model, with the model's own values where it asks nothing. `view` is validated.
LoopParams resolve_loops(const sdk::RequestView& view, const RequestBounds& bounds);

/// Sets request.max_tokens (0 = the rest of the context) or refuses what the context cannot hold.
Status fit_context(Request& request, std::int32_t max_tokens, const RequestBounds& bounds);

}  // namespace tessera
