// Attention of one (row, query head) in the order of docs/numerics.md, "Attention".
#pragma once
#include <cstdint>

#include "tessera/sdk/attention.h"

namespace tessera_reference {

/// `scores` is scratch for position + 1 floats.
using AttendFunction = void (*)(const tessera::sdk::AttentionArgs& args, const tessera::sdk::AttentionShape& shape,
                                std::int32_t row, std::int32_t head, float* scores);

namespace scalar {
extern const AttendFunction kAttend;
}
namespace avx2 {
extern const AttendFunction kAttend;
}
namespace avx512 {
extern const AttendFunction kAttend;
}

}  // namespace tessera_reference
