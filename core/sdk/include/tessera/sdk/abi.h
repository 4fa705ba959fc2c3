// The C-layout handshake: the one object a plugin exports, readable before any C++ of the plugin runs.
#pragma once
#include <cstdint>

#include "tessera/sdk/status.h"

#define TESSERA_SDK_MAJOR 6
#define TESSERA_SDK_MINOR 0
/// The exported symbol; the major is in its name, so a wrong major is a missing symbol.
#define TESSERA_PLUGIN_SYMBOL "tessera_plugin_v6"

namespace tessera::sdk {

class Host;

enum class Kind : std::uint32_t { backend = 1, attention = 2, sparse_decode = 3, protocol = 4 };
enum class Device : std::uint32_t { any = 0, cpu = 1, cuda = 2 };

constexpr const char* kind_name(Kind kind) noexcept {
  switch (kind) {
    case Kind::backend: return "backend";
    case Kind::attention: return "attention";
    case Kind::sparse_decode: return "sparse_decode";
    case Kind::protocol: return "protocol";
  }
  return "unknown";
}

constexpr const char* device_name(Device device) noexcept {
  switch (device) {
    case Device::any: return "any";
    case Device::cpu: return "cpu";
    case Device::cuda: return "cuda";
  }
  return "unknown";
}

/// Compile-time facts that must be equal on both sides. Compared field by field so that a refusal can name the field.
struct BuildId {
  std::uint32_t gxx_abi;     // __GXX_ABI_VERSION
  std::uint32_t cplusplus;   // __cplusplus
  std::uint32_t string_abi;  // _GLIBCXX_USE_CXX11_ABI
};
inline constexpr BuildId kThisBuild{__GXX_ABI_VERSION, static_cast<std::uint32_t>(__cplusplus), _GLIBCXX_USE_CXX11_ABI};

/// What a plugin claims about itself. The conformance kit and `tessera check` hold it to its word.
enum Capability : std::uint64_t {
  kBatchInvariant = 1u << 0,   // a row's bits do not depend on the other rows of the call
  kChunkInvariant = 1u << 1,   // ... nor on how a prompt is cut into calls
  kPortableBits = 1u << 2,     // the f32 reference order: equal bits on every device
  kGraphCapturable = 1u << 3,  // step calls may be captured and replayed
  kEmitsScores = 1u << 4,      // attention can also write its f32 scores
};

struct Traits {
  std::uint64_t capabilities;       // bits of Capability
  std::uint32_t kv_types;           // bit (1 << DType) for each KV element type served; 0 = not applicable
  std::uint32_t head_dim_multiple;  // 0 = not applicable
  std::uint32_t head_dim_max;       // 0 = no limit
  const char* gpu_architectures;    // "80;90", or "" for none
};

/// C layout: readable even when everything after it has changed. Static storage, constant-initialized.
struct Descriptor {
  std::uint32_t struct_size;  // sizeof(Descriptor) as the plugin saw it
  std::uint16_t sdk_major;
  std::uint16_t sdk_minor;  // the host accepts its own major and any minor <= its own
  BuildId build;
  Kind kind;
  Device device;
  const char* name;  // [a-z0-9_]+, equal to the file stem without the device
  const char* version;
  Traits traits;
  /// [control] *out is the interface pointer (Backend*, Attention*, ...); untouched on failure.
  Status (*create)(Host& host, void** out) noexcept;
  /// [control] Frees what create made, with the allocator that made it.
  void (*destroy)(void* instance) noexcept;
};

}  // namespace tessera::sdk
