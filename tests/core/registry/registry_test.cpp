#include "registry/registry.h"

#include <doctest/doctest.h>

#include <chrono>
#include <cstdlib>

#include "tessera/sdk/attention.h"

using namespace tessera;

namespace {

const std::filesystem::path kFolder = std::filesystem::path(TESSERA_BINARY_DIR) / "bad_plugins";

PluginConfig by_path(const std::string& name, std::vector<PluginOption> options = {}) {
  return {.name = name, .path = kFolder / (name + ".so"), .options = std::move(options), .where = {"test.yaml", 3, 5}};
}

std::string refusal(const PluginConfig& config) {
  Registry registry({});
  const auto made = registry.create<sdk::Attention>(config, sdk::Device::cpu);
  return made.ok() ? "" : made.status().message;
}

void must_name(const std::string& sentence, std::initializer_list<const char*> parts) {
  for (const char* part : parts) CHECK_MESSAGE(sentence.find(part) != std::string::npos, sentence, " lacks ", part);
}

}  // namespace

TEST_CASE("a sound plugin given by path is created, used and destroyed, twice at the same time") {
  Registry registry({});
  auto first = registry.create<sdk::Attention>(by_path("plain"), sdk::Device::cpu);
  auto second = registry.create<sdk::Attention>(by_path("plain"), sdk::Device::cpu);
  REQUIRE(first.ok());
  REQUIRE(second.ok());
  CHECK(first->get() != second->get());
  CHECK(std::string(first->descriptor().name) == "plain");
}

TEST_CASE("each refusal is a sentence with the file, what was found and what was wanted") {
  must_name(refusal(by_path("missing")), {"missing.so", "no such plugin file"});
  must_name(refusal(by_path("not_elf")), {"not_elf.so", "no ELF shared library", "tessera_add_plugin"});
  must_name(refusal(by_path("no_symbol")), {"no_symbol.so", "exports no tessera_plugin_v6"});
  must_name(refusal(by_path("wrong_major")), {"wrong_major.so", "tessera_plugin_v7", "tessera_plugin_v6", "rebuild"});
  must_name(refusal(by_path("newer_minor")), {"newer_minor.so", "needs SDK 6.1", "has 6.0"});
  must_name(refusal(by_path("wrong_toolchain")), {"wrong_toolchain.so", "__GXX_ABI_VERSION", "rebuild"});
  must_name(refusal(by_path("wrong_name")), {"wrong_name.so", "another_name", "rename"});
  must_name(refusal(by_path("wrong_kind")), {"wrong_kind.so", "kind protocol", "wanted attention", "test.yaml:3:5"});
}

TEST_CASE("a plugin that throws while it is created is an error with its words, not the end of the process") {
  must_name(refusal(by_path("throws_in_create")), {"thrown in create"});
}

TEST_CASE("an option nobody asked for is refused with its place") {
  const PluginConfig config = by_path("plain", {{"tile", "8", {"test.yaml", 7, 9}}});
  must_name(refusal(config), {"test.yaml:7:9", "plain", "'tile'"});
}

TEST_CASE("a plugin for another device is refused") {
  Registry registry({});
  const auto made = registry.create<sdk::Attention>(by_path("plain"), sdk::Device::cuda);
  REQUIRE(!made.ok());
  must_name(made.status().message, {"plain.so", "runs on cpu", "cuda"});
}

TEST_CASE("an unknown name lists the searched folders and the nearest known name") {
  Registry registry({std::filesystem::path(TESSERA_BINARY_DIR) / "plugins"});
  const PluginConfig config{.name = "attention_referense", .path = {}, .options = {}, .where = {"test.yaml", 1, 2}};
  const auto made = registry.create<sdk::Attention>(config, sdk::Device::cpu);
  REQUIRE(!made.ok());
  must_name(made.status().message, {"test.yaml:1:2", "attention_referense", "did you mean 'attention_reference'"});
}

TEST_CASE("discovery lists files without loading them") {
  const Registry registry({kFolder});
  std::size_t plugins = 0;
  bool saw_text = false;
  for (const PluginFile& file : registry.list()) {
    plugins += file.exports_plugin ? 1 : 0;
    if (file.name == "not_elf") saw_text = !file.exports_plugin;
  }
  CHECK(plugins == 37);  // without not_elf, no_symbol and wrong_major
  CHECK(saw_text);
}

TEST_CASE("earlier directories win, and configured ones come before TESSERA_PLUGIN_PATH") {
  setenv("TESSERA_PLUGIN_PATH", "/second:/third", 1);
  Config config;
  config.plugin_directories = {"/first"};
  const auto path = Registry::search_path(config);
  unsetenv("TESSERA_PLUGIN_PATH");
  REQUIRE(path.size() >= 3);
  CHECK(path[0] == "/first");
  CHECK(path[1] == "/second");
  CHECK(path[2] == "/third");
}

TEST_CASE("a plugin that is slow to destroy is waited for") {
  Registry registry({});
  const auto start = std::chrono::steady_clock::now();
  { REQUIRE(registry.create<sdk::Attention>(by_path("slow_to_destroy"), sdk::Device::cpu).ok()); }
  CHECK(std::chrono::steady_clock::now() - start >= std::chrono::milliseconds(300));
}
