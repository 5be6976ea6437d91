#pragma once

// Philox4x32-10, the counter-based generator of Salmon et al. (SC 2011): four 32-bit numbers from a
// 128-bit counter and a 64-bit key, the same on host and device.

#include <cstdint>

namespace penstock::kernels {

struct PhiloxNumbers {
  uint32_t x[4];
};

__host__ __device__ inline PhiloxNumbers Philox(uint32_t c0, uint32_t c1, uint32_t c2, uint32_t c3,
                                                uint64_t seed) {
  constexpr uint32_t kM0 = 0xD2511F53;
  constexpr uint32_t kM1 = 0xCD9E8D57;
  uint32_t k0 = static_cast<uint32_t>(seed);
  uint32_t k1 = static_cast<uint32_t>(seed >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = static_cast<uint64_t>(kM0) * c0;
    const uint64_t p1 = static_cast<uint64_t>(kM1) * c2;
    const uint32_t n0 = static_cast<uint32_t>(p1 >> 32) ^ c1 ^ k0;
    const uint32_t n2 = static_cast<uint32_t>(p0 >> 32) ^ c3 ^ k1;
    c1 = static_cast<uint32_t>(p1);
    c3 = static_cast<uint32_t>(p0);
    c0 = n0;
    c2 = n2;
    k0 += 0x9E3779B9;
    k1 += 0xBB67AE85;
  }
  return {{c0, c1, c2, c3}};
}

}  // namespace penstock::kernels
