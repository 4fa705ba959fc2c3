// Right, but it promises no invariance: the kit says what that costs.
#include "plain_attention.h"

TESSERA_REGISTER_PLUGIN(bad::sdk::Attention, bad::PlainAttention, bad::sdk::Device::cpu, "claims_nothing", "0.0.1",
                        bad::sdk::Traits{0, 1u, 32, 0, ""})
