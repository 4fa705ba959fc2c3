// A protocol adapter: a pure translation half, and a thin half that talks to the Frontend.
#pragma once
#include "tessera/sdk/abi.h"
#include "tessera/sdk/frontend.h"
#include "tessera/sdk/http.h"

namespace tessera::sdk {

///   create -> start -> stop -> destroy
class Protocol {
 public:
  static constexpr Kind kKind = Kind::protocol;

  /// [control] Claims its routes on the shared listener. Both arguments outlive the adapter.
  virtual Status start(Frontend& frontend, Router& router) noexcept = 0;
  /// [control] Called after the listener has stopped calling handlers; joins whatever the adapter started.
  virtual void stop() noexcept = 0;

 protected:
  ~Protocol() = default;  // destroyed through Descriptor::destroy only
};

}  // namespace tessera::sdk
