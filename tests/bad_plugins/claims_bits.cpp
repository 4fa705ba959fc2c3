// Claims the reference's bits, and sums in another order.
#include "plain_attention.h"

TESSERA_REGISTER_PLUGIN(bad::sdk::Attention, bad::PlainAttention, bad::sdk::Device::cpu, "claims_bits", "0.0.1",
                        bad::sdk::Traits{bad::kInvariant | bad::sdk::kPortableBits, 1u, 32, 0, ""})
