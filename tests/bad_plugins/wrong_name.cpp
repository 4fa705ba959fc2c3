#include "descriptor.h"
BAD_DESCRIPTOR(tessera_plugin_v6, tessera::sdk::Kind::attention, "another_name", TESSERA_SDK_MINOR, __GXX_ABI_VERSION)
