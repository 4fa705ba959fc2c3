// JSON from a model folder: untrusted, so its nesting is limited before anything recursive (copy, dump) touches it.
#pragma once
#include <nlohmann/json.hpp>
#include <string_view>

namespace tessera {

/// A discarded value if the text is not JSON or is nested more than 32 deep. Never throws for bad text.
inline nlohmann::json parse_json(std::string_view text) {
  bool too_deep = false;
  const auto watch = [&](int depth, nlohmann::json::parse_event_t, nlohmann::json&) {
    too_deep = too_deep || depth > 32;
    return !too_deep;
  };
  nlohmann::json value = nlohmann::json::parse(text.begin(), text.end(), watch, false);
  return too_deep ? nlohmann::json(nlohmann::json::value_t::discarded) : value;
}

}  // namespace tessera
