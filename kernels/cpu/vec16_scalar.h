// Sixteen lanes in plain C++: the fallback, and the definition of what the other two must compute.
// Included inside a namespace by kernels_scalar.cc only.

struct V {
  float lane[16];
};
struct I {
  uint32_t lane[16];
};

// Nothing is forced inline or unrolled here: by hand and by sixteen it would take minutes to
// compile.
#define PENSTOCK_RUNTIME_FIELDS
#define PENSTOCK_INLINE inline
#define PENSTOCK_LAMBDA_INLINE

#define PENSTOCK_LANES for (int l = 0; l < 16; ++l)

inline constexpr int kTileRows = 4;     // rows of the register tile
inline constexpr int kTileVectors = 1;  // its width in vectors of 16
inline constexpr int kWideRows = 2;     // up to so many rows the tile is 2 vectors wide

inline V Load(const float* p) {
  V r;
  PENSTOCK_LANES r.lane[l] = p[l];
  return r;
}
inline void Store(float* p, V a) { PENSTOCK_LANES p[l] = a.lane[l]; }
inline V Set1(float x) {
  V r;
  PENSTOCK_LANES r.lane[l] = x;
  return r;
}
inline V Fma(V a, V b, V c) {
  V r;
  PENSTOCK_LANES r.lane[l] = __builtin_fmaf(a.lane[l], b.lane[l], c.lane[l]);
  return r;
}
#define PENSTOCK_BINARY(Name, expr) \
  inline V Name(V a, V b) {         \
    V r;                            \
    PENSTOCK_LANES {                \
      const float x = a.lane[l];    \
      const float y = b.lane[l];    \
      r.lane[l] = expr;             \
    }                               \
    return r;                       \
  }
PENSTOCK_BINARY(Add, x + y)
PENSTOCK_BINARY(Sub, x - y)
PENSTOCK_BINARY(Mul, x* y)
PENSTOCK_BINARY(Div, x / y)
PENSTOCK_BINARY(Max, x > y ? x : y)  // b when either is NaN
PENSTOCK_BINARY(Min, x < y ? x : y)
#undef PENSTOCK_BINARY

inline V LoadHalf(const uint16_t* p) {
  V r;
  PENSTOCK_LANES {
    const uint32_t sign = static_cast<uint32_t>(p[l] & 0x8000) << 16;
    const uint32_t exponent = p[l] >> 10 & 31;
    const uint32_t mantissa = p[l] & 1023;
    uint32_t bits = sign | (exponent + 112) << 23 | mantissa << 13;
    if (exponent == 31) bits = sign | 0x7F800000u | mantissa << 13;
    if (exponent == 0) {
      const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
      __builtin_memcpy(&bits, &magnitude, 4);
      bits |= sign;
    }
    __builtin_memcpy(&r.lane[l], &bits, 4);
  }
  return r;
}
inline V LoadBf16(const uint16_t* p) {
  V r;
  PENSTOCK_LANES {
    const uint32_t bits = static_cast<uint32_t>(p[l]) << 16;
    __builtin_memcpy(&r.lane[l], &bits, 4);
  }
  return r;
}
inline V LoadUint8(const uint8_t* p) {
  V r;
  PENSTOCK_LANES r.lane[l] = static_cast<float>(p[l]);
  return r;
}
inline V LoadInt8(const uint8_t* p) {
  V r;
  PENSTOCK_LANES r.lane[l] = static_cast<float>(static_cast<int8_t>(p[l]));
  return r;
}

inline I LoadWords(const uint8_t* p) {
  I r;
  __builtin_memcpy(r.lane, p, sizeof(r.lane));
  return r;
}
// (word >> kShift) & mask
template <int kShift, uint32_t kMask>
inline I Field(I a) {
  I r;
  PENSTOCK_LANES r.lane[l] = a.lane[l] >> kShift & kMask;
  return r;
}
inline I FieldAt(I a, int shift, uint32_t mask) {
  I r;
  PENSTOCK_LANES r.lane[l] = a.lane[l] >> shift & mask;
  return r;
}
inline constexpr bool kBytesInPlace = false;
template <int kIndex>
inline V ByteToFloat(I a) {
  V r;
  PENSTOCK_LANES r.lane[l] = static_cast<float>(a.lane[l] >> (8 * kIndex) & 255u);
  return r;
}
// low | (high << 4)
inline I Join4(I low, I high) {
  I r;
  PENSTOCK_LANES r.lane[l] = low.lane[l] | high.lane[l] << 4;
  return r;
}
inline V ToFloat(I a) {
  V r;
  PENSTOCK_LANES r.lane[l] = static_cast<float>(static_cast<int32_t>(a.lane[l]));
  return r;
}
// a * 2^n, where n is the low bits of `magic` = n + 12582912.0f (round to nearest by addition)
inline V ScaleByPower(V a, V magic) {
  V r;
  PENSTOCK_LANES {
    uint32_t bits;
    __builtin_memcpy(&bits, &magic.lane[l], 4);
    bits = (bits + 127u) << 23;
    float power;
    __builtin_memcpy(&power, &bits, 4);
    r.lane[l] = a.lane[l] * power;
  }
  return r;
}
inline V Abs(V a) {
  V r;
  PENSTOCK_LANES r.lane[l] = __builtin_fabsf(a.lane[l]);
  return r;
}
// magnitude of a, sign of b
inline V CopySign(V a, V b) {
  V r;
  PENSTOCK_LANES r.lane[l] = __builtin_copysignf(a.lane[l], b.lane[l]);
  return r;
}

// Lanes are summed as a fixed tree: i with i+8, then i+4, i+2, i+1.
inline float SumLanes(V a) {
  for (int half = 8; half >= 1; half /= 2) {
    for (int l = 0; l < half; ++l) a.lane[l] += a.lane[l + half];
  }
  return a.lane[0];
}
inline float MaxLanes(V a) {
  for (int half = 8; half >= 1; half /= 2) {
    for (int l = 0; l < half; ++l) {
      const float x = a.lane[l];
      const float y = a.lane[l + half];
      a.lane[l] = x > y ? x : y;
    }
  }
  return a.lane[0];
}
#undef PENSTOCK_LANES
