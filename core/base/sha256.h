// SHA-256 (FIPS 180-4) through OpenSSL.
#pragma once
#include <array>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace tessera {

using Digest = std::array<unsigned char, 32>;

class Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256(const Sha256&) = delete;
  Sha256& operator=(const Sha256&) = delete;

  Sha256& add(std::span<const std::byte> bytes);
  Sha256& add(std::string_view text) { return add(std::as_bytes(std::span(text))); }
  /// The digest of everything added; the object is spent afterwards.
  Digest finish();

 private:
  struct Context;
  std::unique_ptr<Context> context_;
};

std::string to_hex(const Digest& digest);

}  // namespace tessera
