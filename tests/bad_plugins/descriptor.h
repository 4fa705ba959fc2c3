// Descriptors that lie: what TESSERA_REGISTER_PLUGIN would never write.
#pragma once
#include "plain_attention.h"

#define BAD_DESCRIPTOR(symbol, kind, name, minor, gxx_abi)                                 \
  extern const ::tessera::sdk::Descriptor bad_descriptor;                                  \
  constinit const ::tessera::sdk::Descriptor bad_descriptor{                               \
      sizeof(::tessera::sdk::Descriptor),                                                  \
      TESSERA_SDK_MAJOR,                                                                   \
      minor,                                                                               \
      {gxx_abi, static_cast<std::uint32_t>(__cplusplus), _GLIBCXX_USE_CXX11_ABI},          \
      kind,                                                                                \
      ::tessera::sdk::Device::cpu,                                                         \
      name,                                                                                \
      "0.0.1",                                                                             \
      ::bad::kTraits,                                                                      \
      &::tessera::sdk::detail::create<::tessera::sdk::Attention, ::bad::PlainAttention>,   \
      &::tessera::sdk::detail::destroy<::tessera::sdk::Attention, ::bad::PlainAttention>}; \
  BOOST_DLL_ALIAS(bad_descriptor, symbol)
