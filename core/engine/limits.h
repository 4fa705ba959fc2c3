// What a configuration lets one step hold. Private to core/engine.
#pragma once
#include "base/status.h"
#include "config/config.h"
#include "model/spec.h"
#include "tessera/sdk/batch.h"

namespace tessera {

/// Refuses a context, a speculation or a step that this model or this configuration cannot have. `all_logits`: every
/// row of a step may answer.
Result<sdk::StepLimits> step_limits(const Config& config, const DecoderSpec& spec, bool all_logits);

}  // namespace tessera
