// Physical pages: ids, reference counts, and which of them still hold the KV of a known prefix.
#pragma once
#include <cstdint>

namespace tessera {

using PageId = std::int32_t;

class PagePool;  // to be completed

}  // namespace tessera
