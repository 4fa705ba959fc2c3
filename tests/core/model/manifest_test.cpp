#include "model/manifest.h"

#include <doctest/doctest.h>

#include <fstream>

namespace tessera {
namespace {

TEST_CASE("weights are held to the hashes beside them, and without any nothing is promised") {
  const auto folder = std::filesystem::path(TESSERA_BINARY_DIR) / "manifest_test";
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  const std::map<std::string, Digest> files{{"a.safetensors", Sha256().add("a").finish()},
                                            {"b.safetensors", Sha256().add("b").finish()}};
  const auto complaint = [&](const std::string& text) -> std::string {
    std::ofstream(folder / "SHA256SUMS") << text;
    const Status status = check_manifest(folder, files);
    return status.ok() ? "" : status.message;
  };
  CHECK(check_manifest(folder, files).ok());
  const std::string a = to_hex(Sha256().add("a").finish()), b = to_hex(Sha256().add("b").finish());
  CHECK(complaint(a + "  a.safetensors\n" + b + " *b.safetensors\n\n" + a + "  config.json\n").empty());
  CHECK(complaint(a + "  a.safetensors\n" + a + "  b.safetensors\n").find("b.safetensors: its SHA-256 is " + b) !=
        std::string::npos);
  CHECK(complaint(a + "  a.safetensors\n").find("does not list b.safetensors") != std::string::npos);
  for (const std::string& bad : {std::string("x"), a, a + "  ", a + " a.safetensors", "A" + a.substr(1) + "  a"})
    CHECK_MESSAGE(complaint("\n" + bad + "\n").find("SHA256SUMS:2: no line of sha256sum") != std::string::npos, bad);
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace tessera
