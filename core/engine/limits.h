// What a configuration lets one step hold. Private to core/engine.
#pragma once
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

/// Of rounds in flight.
RoundShape round_shape(const Config& config, const DecoderSpec& spec, std::int32_t capture_depth);

}  // namespace tessera
