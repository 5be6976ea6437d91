#include "common/base/sha256.h"

#include <openssl/evp.h>

#include "common/base/check.h"

namespace penstock {

struct Sha256Stream::Context {
  Context() : md(EVP_MD_CTX_new()) {
    CHECK(md != nullptr);
    CHECK(EVP_DigestInit_ex(md, EVP_sha256(), nullptr) == 1);
  }
  ~Context() { EVP_MD_CTX_free(md); }
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;
  EVP_MD_CTX* md;
};

Sha256Stream::Sha256Stream() : context_(std::make_unique<Context>()) {}
Sha256Stream::~Sha256Stream() = default;
Sha256Stream::Sha256Stream(Sha256Stream&&) noexcept = default;
Sha256Stream& Sha256Stream::operator=(Sha256Stream&&) noexcept = default;

void Sha256Stream::Update(const void* data, size_t size) {
  CHECK(EVP_DigestUpdate(context_->md, data, size) == 1);
}

Sha256Digest Sha256Stream::Finish() {
  Sha256Digest digest;
  unsigned int size = 0;
  CHECK(EVP_DigestFinal_ex(context_->md, digest.data(), &size) == 1);
  CHECK(size == digest.size());
  return digest;
}

void Sha256Stream::Restart() { CHECK(EVP_DigestInit_ex(context_->md, nullptr, nullptr) == 1); }

Sha256Digest Sha256(std::string_view data) {
  Sha256Stream stream;
  stream.Update(data.data(), data.size());
  return stream.Finish();
}

std::string HexEncode(std::span<const uint8_t> bytes) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string out;
  out.reserve(bytes.size() * 2);
  for (uint8_t byte : bytes) {
    out.push_back(kDigits[byte >> 4]);
    out.push_back(kDigits[byte & 15]);
  }
  return out;
}

}  // namespace penstock
