#include "http/routes.h"

#include <mutex>

namespace tessera {

Status Routes::add(std::string_view method, std::string_view path, sdk::HttpHandler& handler) {
  if (path.empty() || path.front() != '/')
    return fail(Code::invalid_argument, "route '{} {}' must start with '/'", method, path);
  const std::unique_lock lock(mutex_);
  if (!exact_[std::string(path)].emplace(method, &handler).second)
    return fail(Code::invalid_argument, "route '{} {}' is already claimed by another protocol; leave one of them out",
                method, path);
  return {};
}

Status Routes::add_fallback(std::string_view prefix, sdk::HttpHandler& handler) {
  if (prefix.empty() || prefix.front() != '/')
    return fail(Code::invalid_argument, "fallback prefix '{}' must start with '/'", prefix);
  const std::unique_lock lock(mutex_);
  if (!fallbacks_.emplace(prefix, &handler).second)
    return fail(Code::invalid_argument,
                "fallback prefix '{}' is already claimed by another protocol; leave one of them out", prefix);
  return {};
}

Routes::Match Routes::find(std::string_view method, std::string_view path) const {
  const std::shared_lock lock(mutex_);
  Match match;
  if (const auto route = exact_.find(path); route != exact_.end()) {
    for (const auto& [name, handler] : route->second) {
      if (name == method) return {handler, ""};
      match.allow += (match.allow.empty() ? "" : ", ") + name;
    }
  }
  std::size_t longest = 0;
  for (const auto& [prefix, handler] : fallbacks_)
    if (prefix.size() > longest && path.starts_with(prefix)) {
      longest = prefix.size();
      match.handler = handler;
    }
  return match;
}

}  // namespace tessera
