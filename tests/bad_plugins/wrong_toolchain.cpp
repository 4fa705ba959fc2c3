#include "descriptor.h"
BAD_DESCRIPTOR(tessera_plugin_v6, tessera::sdk::Kind::attention, "wrong_toolchain", TESSERA_SDK_MINOR,
               __GXX_ABI_VERSION + 1)
