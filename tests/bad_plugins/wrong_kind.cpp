#include "descriptor.h"
BAD_DESCRIPTOR(tessera_plugin_v6, tessera::sdk::Kind::protocol, "wrong_kind", TESSERA_SDK_MINOR, __GXX_ABI_VERSION)
