// Which handler answers which request. Filled before the listener starts; read by every connection.
#pragma once
#include <map>
#include <shared_mutex>
#include <string>
#include <string_view>

#include "base/status.h"
#include "tessera/sdk/http.h"

namespace tessera {

/// Thread-safe. Handlers are borrowed: they must outlive every lookup.
class Routes {
 public:
  struct Match {
    sdk::HttpHandler* handler = nullptr;
    std::string allow;  // with no handler: the methods that this path does have, "" when it has none
  };

  Status add(std::string_view method, std::string_view path, sdk::HttpHandler& handler);
  Status add_fallback(std::string_view prefix, sdk::HttpHandler& handler);

  /// The exact route, or else the fallback with the longest prefix of `path`.
  Match find(std::string_view method, std::string_view path) const;

 private:
  mutable std::shared_mutex mutex_;
  std::map<std::string, std::map<std::string, sdk::HttpHandler*>, std::less<>> exact_;  // path -> method -> handler
  std::map<std::string, sdk::HttpHandler*, std::less<>> fallbacks_;
};

}  // namespace tessera
