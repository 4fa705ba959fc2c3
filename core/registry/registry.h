// Finds plugins, and loads them after checking that they can be loaded. The only user of Boost.DLL.
#pragma once
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "config/config.h"
#include "registry/plugin_host.h"
#include "tessera/sdk/abi.h"

namespace tessera {

/// A candidate on disk; nothing of it has been run.
struct PluginFile {
  std::filesystem::path path;
  std::string kind;     // of the folder it lies in, "unknown" outside one
  std::string name;     // file stem without the device
  std::string device;   // "cpu", "cuda" or "any"
  bool exports_plugin;  // lists the SDK's symbol in its alias section
};

/// Owns one plugin instance and its Host. Empty until assigned.
template <class Interface>
class PluginPtr {
 public:
  PluginPtr() = default;
  PluginPtr(const sdk::Descriptor& descriptor, std::unique_ptr<PluginHost> host, void* instance)
      : descriptor_(&descriptor), host_(std::move(host)), instance_(static_cast<Interface*>(instance)) {}
  PluginPtr(PluginPtr&& other) noexcept { *this = std::move(other); }
  PluginPtr& operator=(PluginPtr&& other) noexcept {
    std::swap(descriptor_, other.descriptor_);
    std::swap(host_, other.host_);
    std::swap(instance_, other.instance_);
    return *this;
  }
  ~PluginPtr() { reset(); }

  /// Destroys the instance; the Host outlives it.
  void reset() {
    if (instance_ != nullptr) descriptor_->destroy(std::exchange(instance_, nullptr));
    host_.reset();
  }

  Interface* get() const { return instance_; }
  Interface* operator->() const { return instance_; }
  const sdk::Descriptor& descriptor() const { return *descriptor_; }

 private:
  const sdk::Descriptor* descriptor_ = nullptr;
  std::unique_ptr<PluginHost> host_;
  Interface* instance_ = nullptr;
};

/// Directories in search order; each is tried as DIR/<kind>/FILE, then DIR/FILE, where FILE is NAME.<device>.so or
/// NAME.so. Libraries stay loaded for the life of the process. Used by one thread.
class Registry {
 public:
  explicit Registry(std::vector<std::filesystem::path> directories) : directories_(std::move(directories)) {}

  /// plugins.directories, TESSERA_PLUGIN_PATH (colon-separated), the build tree's and the installed folder beside the
  /// executable.
  static std::vector<std::filesystem::path> search_path(const Config& config);

  const std::vector<std::filesystem::path>& directories() const { return directories_; }
  /// Every .so of the search path, without loading any.
  std::vector<PluginFile> list() const;

  /// Loads and checks a file. One sentence says why not: path, found, wanted, fix.
  static Result<const sdk::Descriptor*> open(const std::filesystem::path& path);

  /// Finds (config.path, else by name), loads, checks kind and device, creates, and refuses options nobody read.
  template <class Interface>
  Result<PluginPtr<Interface>> create(const PluginConfig& config, sdk::Device device) {
    auto made = create_raw(config, Interface::kKind, device);
    if (!made.ok()) return made.status();
    return PluginPtr<Interface>(*made->descriptor, std::move(made->host), made->instance);
  }

 private:
  struct Made {
    const sdk::Descriptor* descriptor;
    std::unique_ptr<PluginHost> host;
    void* instance;
  };
  Result<Made> create_raw(const PluginConfig& config, sdk::Kind kind, sdk::Device device);
  Result<std::filesystem::path> find(const PluginConfig& config, sdk::Kind kind, sdk::Device device) const;

  std::vector<std::filesystem::path> directories_;
};

}  // namespace tessera
