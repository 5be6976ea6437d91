#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace penstock {

using Sha256Digest = std::array<uint8_t, 32>;

Sha256Digest Sha256(std::string_view data);
std::string HexEncode(std::span<const uint8_t> bytes);

// Incremental hash of a long input. After Finish, Restart begins another one without allocating.
class Sha256Stream {
 public:
  Sha256Stream();
  ~Sha256Stream();
  Sha256Stream(Sha256Stream&&) noexcept;
  Sha256Stream& operator=(Sha256Stream&&) noexcept;
  void Update(const void* data, size_t size);
  Sha256Digest Finish();
  void Restart();

 private:
  struct Context;
  std::unique_ptr<Context> context_;
};

}  // namespace penstock
