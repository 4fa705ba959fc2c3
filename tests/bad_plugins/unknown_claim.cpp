// Claims something this SDK has no name for.
#include "plain_attention.h"

TESSERA_REGISTER_PLUGIN(bad::sdk::Attention, bad::PlainAttention, bad::sdk::Device::cpu, "unknown_claim", "0.0.1",
                        bad::sdk::Traits{1u << 30, 1u, 32, 0, ""})
