// What a configuration lets one step hold. Private to core/engine.
#pragma once
#include <cstdint>
#include <vector>

#include "base/status.h"
#include "config/config.h"
#include "engine/device_rounds.h"
#include "model/spec.h"
#include "tessera/sdk/batch.h"

namespace tessera {

/// Refuses a context, a speculation or a step that this model or this configuration cannot have. `all_logits`: every
/// row of a step may answer.
Result<sdk::StepLimits> step_limits(const Config& config, const DecoderSpec& spec, bool all_logits);

/// speculation.rounds_in_flight where there are rounds.
std::int32_t rounds_in_flight(const Config& config);

/// Who holds how many pages of index lists at one time.
struct ListDemand {
  std::vector<std::int32_t> pages;  // [max_context] of a row captured at each position, ascending
  std::int32_t sequences;           // that run at one time
  std::int32_t rows;                // of one sequence that hold lists at one time
  std::int64_t positions;           // that the KV pool holds
  std::int64_t cheap;               // list pages whose memory is not worth a wait
};

/// List pages to claim: what all sequences need at positions that the KV pool can hold, or the cheap ones where these
/// are more; never more than in the worst case, nor fewer than one sequence may need.
std::int64_t list_pool_size(const ListDemand& demand);

/// Of rounds in flight.
RoundShape round_shape(const Config& config, const DecoderSpec& spec, std::int32_t capture_depth);

}  // namespace tessera
