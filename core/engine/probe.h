// What an attention plugin must survive before a model is served with it.
#pragma once
#include "base/status.h"
#include "tessera/sdk/attention.h"
#include "tessera/sdk/backend.h"
#include "tessera/sdk/kv.h"

namespace tessera {

/// Runs the bound plugin on a few rows over the zeroed pool, its output between guard bands. Refuses a plugin that
/// leaves an element of its output unwritten, or writes anywhere else: past the output, or into the pool.
/// It cannot see every wrong write; `tessera plugins check` looks longer.
Status probe_attention(sdk::Backend& backend, sdk::Attention& attention, const char* name,
                       const sdk::AttentionShape& shape, const sdk::StepLimits& limits, const sdk::KvView& kv,
                       void* workspace);

}  // namespace tessera
