#include "descriptor.h"
BAD_DESCRIPTOR(tessera_plugin_v6, tessera::sdk::Kind::attention, "newer_minor", TESSERA_SDK_MINOR + 1,
               __GXX_ABI_VERSION)
