// What every variant serves, on every device.
#pragma once
#include "tessera/sdk/attention.h"

namespace tessera_exact {

/// head_dim a multiple of 32 up to 256, 1 to 32 query heads a KV head, f32 KV; anything else is refused with a
/// sentence.
tessera::sdk::Status check_shape(const tessera::sdk::AttentionShape& shape);

}  // namespace tessera_exact
