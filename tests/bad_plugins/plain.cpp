// Nothing is wrong with this one: the others are refused for what they do, not for being here.
#include "plain_attention.h"

TESSERA_REGISTER_PLUGIN(bad::sdk::Attention, bad::PlainAttention, bad::sdk::Device::cpu, "plain", "0.0.1", bad::kTraits)
