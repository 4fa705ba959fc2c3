#include "registry/registry.h"

#include <algorithm>
#include <boost/dll/library_info.hpp>
#include <boost/dll/shared_library.hpp>
#include <cstdlib>
#include <map>
#include <sstream>
#include <vector>  // before library_info.hpp, which forgets it

#include "base/log.h"
#include "base/nearest.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

const char* const kKinds[] = {"backend", "attention", "sparse_decode", "protocol"};

/// "attention_exact.cpu.so" -> {"attention_exact", "cpu"}
std::pair<std::string, std::string> split_stem(const fs::path& path) {
  std::string stem = path.stem().string();
  for (const char* device : {"cpu", "cuda"}) {
    const std::string suffix = std::string(".") + device;
    if (stem.ends_with(suffix)) return {stem.substr(0, stem.size() - suffix.size()), device};
  }
  return {stem, "any"};
}

/// Names in the ELF section of Boost.DLL aliases; fails for what is no ELF file.
Result<std::vector<std::string>> alias_symbols(const fs::path& path) {
  std::error_code error;
  if (!fs::is_regular_file(path, error))
    return fail(Code::not_found, "{}: there is no such plugin file; check the path or build the plugin", path.string());
  try {
    boost::dll::library_info info(path);
    return info.symbols("boostdll");
  } catch (const std::exception& failure) {
    return fail(Code::invalid_argument,
                "{}: is no ELF shared library ({}); wanted a plugin built with tessera_add_plugin()", path.string(),
                failure.what());
  }
}

Status check_symbol(const fs::path& path) {
  auto symbols = alias_symbols(path);
  if (!symbols.ok()) return symbols.status();
  if (std::find(symbols->begin(), symbols->end(), TESSERA_PLUGIN_SYMBOL) != symbols->end()) return {};
  for (const std::string& symbol : *symbols)
    if (symbol.starts_with("tessera_plugin_v"))
      return fail(Code::invalid_argument,
                  "{}: exports {}, so it was built for another SDK major; wanted {}; rebuild it "
                  "against this SDK",
                  path.string(), symbol, TESSERA_PLUGIN_SYMBOL);
  return fail(Code::invalid_argument, "{}: exports no {}; wanted a plugin registered with TESSERA_REGISTER_PLUGIN",
              path.string(), TESSERA_PLUGIN_SYMBOL);
}

Status check_build(const fs::path& path, const sdk::BuildId& found) {
  const auto differs = [&](const char* what, std::uint32_t theirs, std::uint32_t ours) {
    return fail(Code::invalid_argument,
                "{}: was built with {} {} but the engine with {}; rebuild it with the engine's "
                "compiler and flags",
                path.string(), what, theirs, ours);
  };
  if (found.gxx_abi != sdk::kThisBuild.gxx_abi)
    return differs("__GXX_ABI_VERSION", found.gxx_abi, sdk::kThisBuild.gxx_abi);
  if (found.cplusplus != sdk::kThisBuild.cplusplus)
    return differs("__cplusplus", found.cplusplus, sdk::kThisBuild.cplusplus);
  if (found.string_abi != sdk::kThisBuild.string_abi)
    return differs("_GLIBCXX_USE_CXX11_ABI", found.string_abi, sdk::kThisBuild.string_abi);
  return {};
}

Status check_descriptor(const fs::path& path, const sdk::Descriptor& d) {
  if (d.struct_size != sizeof(sdk::Descriptor) || d.sdk_major != TESSERA_SDK_MAJOR)
    return fail(Code::invalid_argument,
                "{}: its descriptor is {} bytes of SDK {}; wanted {} bytes of SDK {}; rebuild it "
                "against this SDK",
                path.string(), d.struct_size, d.sdk_major, sizeof(sdk::Descriptor), TESSERA_SDK_MAJOR);
  if (d.sdk_minor > TESSERA_SDK_MINOR)
    return fail(Code::invalid_argument,
                "{}: needs SDK {}.{} but this engine has {}.{}; use a newer engine or rebuild it", path.string(),
                d.sdk_major, d.sdk_minor, TESSERA_SDK_MAJOR, TESSERA_SDK_MINOR);
  TESSERA_TRY(check_build(path, d.build));
  const auto [name, device] = split_stem(path);
  if (name != d.name)
    return fail(Code::invalid_argument, "{}: calls itself '{}'; wanted '{}' like its file; rename one of them",
                path.string(), d.name, name);
  if (device != "any" && device != sdk::device_name(d.device))
    return fail(Code::invalid_argument, "{}: is built for device {} but its file name says {}; rename it",
                path.string(), sdk::device_name(d.device), device);
  return {};
}

}  // namespace

std::vector<fs::path> Registry::search_path(const Config& config) {
  std::vector<fs::path> directories = config.plugin_directories;
  if (const char* listed = std::getenv("TESSERA_PLUGIN_PATH"); listed != nullptr) {
    std::istringstream parts{std::string(listed)};
    for (std::string part; std::getline(parts, part, ':');)
      if (!part.empty()) directories.emplace_back(part);
  }
  std::error_code error;
  const fs::path executable = fs::read_symlink("/proc/self/exe", error);
  if (!error) {
    const fs::path root = executable.parent_path().parent_path();
    directories.push_back(root / "plugins");
    directories.push_back(root / "lib" / "tessera" / "plugins");
  }
  return directories;
}

std::vector<PluginFile> Registry::list() const {
  std::vector<PluginFile> files;
  const auto scan = [&](const fs::path& directory, const std::string& kind) {
    std::error_code error;
    for (const fs::directory_entry& entry : fs::directory_iterator(directory, error)) {
      if (entry.path().extension() != ".so") continue;
      const auto [name, device] = split_stem(entry.path());
      files.push_back({entry.path(), kind, name, device, check_symbol(entry.path()).ok()});
    }
  };
  for (const fs::path& directory : directories_) {
    for (const char* kind : kKinds) scan(directory / kind, kind);
    scan(directory, "unknown");
  }
  std::sort(files.begin(), files.end(), [](const PluginFile& a, const PluginFile& b) { return a.path < b.path; });
  return files;
}

Result<const sdk::Descriptor*> Registry::open(const fs::path& path) {
  TESSERA_TRY(check_symbol(path));
  try {
    // Never destroyed, so never unloaded: code of a plugin may be referenced until the process ends.
    static auto& libraries = *new std::map<fs::path, boost::dll::shared_library>;
    boost::dll::shared_library& library = libraries[fs::absolute(path)];
    if (!library.is_loaded())
      library.load(fs::absolute(path), boost::dll::load_mode::rtld_now | boost::dll::load_mode::rtld_local);
    const sdk::Descriptor& descriptor = library.get_alias<const sdk::Descriptor>(TESSERA_PLUGIN_SYMBOL);
    TESSERA_TRY(check_descriptor(path, descriptor));
    return &descriptor;
  } catch (const std::exception& error) {
    return fail(Code::invalid_argument, "{}: cannot be loaded ({}); wanted a library with no undefined symbols",
                path.string(), error.what());
  }
}

Result<fs::path> Registry::find(const PluginConfig& config, sdk::Kind kind, sdk::Device device) const {
  if (!config.path.empty()) return config.path;
  std::vector<std::string> names;
  if (device != sdk::Device::any) names.push_back(config.name + "." + sdk::device_name(device) + ".so");
  if (device == sdk::Device::any)
    for (const char* name : {"cpu", "cuda"}) names.push_back(config.name + "." + name + ".so");
  names.push_back(config.name + ".so");
  std::string searched;
  for (const fs::path& directory : directories_) {
    for (const fs::path& folder : {directory / sdk::kind_name(kind), directory})
      for (const std::string& name : names) {
        std::error_code error;
        if (fs::is_regular_file(folder / name, error)) return folder / name;
      }
    searched += (searched.empty() ? "" : ", ") + directory.string();
  }
  std::vector<std::string> known;
  for (const PluginFile& file : list())
    if (file.kind == sdk::kind_name(kind)) known.push_back(file.name);
  const std::string near = nearest(config.name, known);
  return fail(
      Code::not_found, "{}: there is no {} plugin '{}'{} in {}; {}", config.where.text(), sdk::kind_name(kind),
      config.name, device == sdk::Device::any ? "" : fmt::format(" for device {}", sdk::device_name(device)), searched,
      near.empty() ? fmt::format("known are {}", fmt::join(known, ", ")) : fmt::format("did you mean '{}'?", near));
}

Result<Registry::Made> Registry::create_raw(const PluginConfig& config, sdk::Kind kind, sdk::Device device) {
  auto path = find(config, kind, device);
  if (!path.ok()) return path.status();
  auto descriptor = open(*path);
  if (!descriptor.ok()) return descriptor.status();
  const sdk::Descriptor& d = **descriptor;
  if (d.kind != kind)
    return fail(Code::invalid_argument, "{}: is a plugin of kind {}; wanted {} where {} names it", path->string(),
                sdk::kind_name(d.kind), sdk::kind_name(kind), config.where.text());
  if (device != sdk::Device::any && d.device != sdk::Device::any && d.device != device)
    return fail(Code::invalid_argument, "{}: runs on {} but the backend on {}; choose the plugin's {} build",
                path->string(), sdk::device_name(d.device), sdk::device_name(device), sdk::device_name(device));
  log(LogLevel::info, "{} {} {} from {}", sdk::kind_name(kind), d.name, d.version, path->string());
  auto host = std::make_unique<PluginHost>(config);
  void* instance = nullptr;
  if (Status status = d.create(*host, &instance); !status.ok()) return status;
  if (instance == nullptr)
    return fail(Code::internal, "{}: created nothing and gave no reason; wanted an object or an error", path->string());
  Made made{&d, std::move(host), instance};
  if (Status status = made.host->all_read(); !status.ok()) {
    d.destroy(instance);
    return status;
  }
  return made;
}

}  // namespace tessera
