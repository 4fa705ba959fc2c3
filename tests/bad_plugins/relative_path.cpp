// Linked to look for its libraries in the working directory.
#include "plain_attention.h"

TESSERA_REGISTER_PLUGIN(bad::sdk::Attention, bad::PlainAttention, bad::sdk::Device::cpu, "relative_path", "0.0.1",
                        bad::kTraits)
