// Any bytes as a configuration: accepted and read back to the same values, or refused with a sentence.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "config/config.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto config = tessera::parse_config(text, "fuzz.yaml", {}, {});
  if (!config.ok()) {
    if (config.status().message[0] == '\0') std::abort();
    return 0;
  }
  const std::string yaml = tessera::to_yaml(*config);
  const auto again = tessera::parse_config(yaml, "again.yaml", {}, {});
  if (!again.ok() || tessera::to_yaml(*again) != yaml) std::abort();
  return 0;
}
