#include "base/sha256.h"

#include <fmt/format.h>
#include <openssl/evp.h>

#include "base/check.h"

namespace tessera {

struct Sha256::Context {
  EVP_MD_CTX* md = EVP_MD_CTX_new();
};

Sha256::Sha256() : context_(std::make_unique<Context>()) {
  check(context_->md != nullptr && EVP_DigestInit_ex(context_->md, EVP_sha256(), nullptr) == 1,
        "OpenSSL has no SHA-256");
}

Sha256::~Sha256() { EVP_MD_CTX_free(context_->md); }

Sha256& Sha256::add(std::span<const std::byte> bytes) {
  check(EVP_DigestUpdate(context_->md, bytes.data(), bytes.size()) == 1, "SHA-256 update of {} bytes failed",
        bytes.size());
  return *this;
}

Digest Sha256::finish() {
  Digest digest{};
  check(EVP_DigestFinal_ex(context_->md, digest.data(), nullptr) == 1, "SHA-256 was finished twice");
  return digest;
}

std::string to_hex(const Digest& digest) {
  std::string text;
  for (unsigned char byte : digest) text += fmt::format("{:02x}", byte);
  return text;
}

}  // namespace tessera
