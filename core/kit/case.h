// One case of the kit and what it finds.
#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "config/config.h"
#include "registry/registry.h"
#include "tessera/sdk/abi.h"

namespace tessera {

enum class Verdict {
  passed,
  failed,
  not_claimed,  // the plugin does not promise it
  skipped,      // it could not be tried, or a case it rests on did not pass
};
const char* verdict_name(Verdict verdict);

/// What the descriptor says, for a parent process that never loads the plugin.
struct PluginFacts {
  std::string kind, name, version, device;
  std::uint64_t capabilities = 0;
};

struct Finding {
  Verdict verdict = Verdict::passed;
  std::string reason;                     // with passed, what was done
  std::optional<PluginFacts> facts = {};  // of the case that loads the library
};

template <class... Args>
Finding passed(fmt::format_string<Args...> format, Args&&... args) {
  return {Verdict::passed, fmt::format(format, std::forward<Args>(args)...)};
}
template <class... Args>
Finding failed(fmt::format_string<Args...> format, Args&&... args) {
  return {Verdict::failed, fmt::format(format, std::forward<Args>(args)...)};
}
inline Finding failed(const Status& status) { return {Verdict::failed, status.message}; }

/// The plugin under test, and all that a case may need to run it.
struct Subject {
  std::filesystem::path file;
  Config config;        // `plugin` stands in it where its kind belongs
  PluginConfig plugin;  // its path, and the options it is created with
  std::uint64_t seed = 0;
  std::int32_t fuzz = 0;
  std::function<void(std::string_view)> doing = [](std::string_view) {};  // said before what may crash or hang
};

struct KitCase {
  const char* name;
  const char* promise;  // what holds when it passes
  const char* needs;    // the case on which it rests, or ""
  Finding (*run)(const Subject& subject);
};

/// In the order in which they run. The last of the library's tells what the plugin is.
std::span<const KitCase> library_cases();
std::span<const KitCase> lifecycle_cases();
std::span<const KitCase> attention_cases();

}  // namespace tessera
