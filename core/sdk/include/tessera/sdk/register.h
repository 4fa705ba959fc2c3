// The only macro of the SDK: exports the descriptor of one plugin.
#pragma once
#define BOOST_DLL_FORCE_ALIAS_INSTANTIATION
#include <boost/dll/alias.hpp>
#include <new>

#include "tessera/sdk/abi.h"
#include "tessera/sdk/host.h"

namespace tessera::sdk::detail {

/// Type must be constructible as Type(Host&, Status&): a constructor that sets a failed Status is destroyed at once.
template <class Interface, class Type>
Status create(Host& host, void** out) noexcept {
  return guarded([&]() -> Status {
    Status status;
    Type* object = new Type(host, status);
    if (!status.ok()) {
      delete object;
      return status;
    }
    *out = static_cast<Interface*>(object);
    return status;
  });
}

template <class Interface, class Type>
void destroy(void* instance) noexcept {
  delete static_cast<Type*>(static_cast<Interface*>(instance));
}

}  // namespace tessera::sdk::detail

/// Put once, at namespace scope, in one source file. `traits` is a ::tessera::sdk::Traits{...} initializer.
#define TESSERA_REGISTER_PLUGIN(Interface, Type, device, name, version, ...)                                        \
  extern const ::tessera::sdk::Descriptor tessera_descriptor;                                                       \
  constinit const ::tessera::sdk::Descriptor tessera_descriptor{sizeof(::tessera::sdk::Descriptor),                 \
                                                                TESSERA_SDK_MAJOR,                                  \
                                                                TESSERA_SDK_MINOR,                                  \
                                                                ::tessera::sdk::kThisBuild,                         \
                                                                Interface::kKind,                                   \
                                                                device,                                             \
                                                                name,                                               \
                                                                version,                                            \
                                                                __VA_ARGS__,                                        \
                                                                &::tessera::sdk::detail::create<Interface, Type>,   \
                                                                &::tessera::sdk::detail::destroy<Interface, Type>}; \
  BOOST_DLL_ALIAS(tessera_descriptor, tessera_plugin_v6)
