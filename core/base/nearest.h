// "Did you mean": the known name nearest to a mistyped one.
#pragma once
#include <span>
#include <string>
#include <string_view>

namespace tessera {

/// The nearest by edit distance (insert, delete, replace, swap neighbours), or "" when nothing is within a third of the
/// longer name's length (at least 2).
std::string nearest(std::string_view name, std::span<const std::string> known);

}  // namespace tessera
