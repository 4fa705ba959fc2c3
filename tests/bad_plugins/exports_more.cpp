// Built without the version script: what it defines can collide with others.
#include "plain_attention.h"

extern "C" [[gnu::visibility("default")]] int init();
int init() { return 1; }

TESSERA_REGISTER_PLUGIN(bad::sdk::Attention, bad::PlainAttention, bad::sdk::Device::cpu, "exports_more", "0.0.1",
                        bad::kTraits)
