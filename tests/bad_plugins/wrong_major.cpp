#include "descriptor.h"
BAD_DESCRIPTOR(tessera_plugin_v7, tessera::sdk::Kind::attention, "wrong_major", TESSERA_SDK_MINOR, __GXX_ABI_VERSION)
