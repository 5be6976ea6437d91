// Sixteen lanes as two AVX2 registers. The same bits as vec16_scalar.h, lane by lane.
// Included inside a namespace by kernels_avx2.cc only.

struct V {
  __m256 a, b;
};
struct I {
  __m256i a, b;
};

#define PENSTOCK_INLINE inline __attribute__((always_inline))
#define PENSTOCK_LAMBDA_INLINE __attribute__((always_inline))

inline constexpr int kTileRows = 6;     // 6 x 2 registers of sums, 2 of weights, 1 broadcast
inline constexpr int kTileVectors = 1;  // width in vectors of 16
inline constexpr int kWideRows = 3;     // up to so many rows the tile is 2 vectors wide

PENSTOCK_INLINE V Load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
PENSTOCK_INLINE void Store(float* p, V v) {
  _mm256_storeu_ps(p, v.a);
  _mm256_storeu_ps(p + 8, v.b);
}
PENSTOCK_INLINE V Set1(float x) {
  const __m256 v = _mm256_set1_ps(x);
  return {v, v};
}
PENSTOCK_INLINE V Fma(V x, V y, V z) {
  return {_mm256_fmadd_ps(x.a, y.a, z.a), _mm256_fmadd_ps(x.b, y.b, z.b)};
}
PENSTOCK_INLINE V Add(V x, V y) { return {_mm256_add_ps(x.a, y.a), _mm256_add_ps(x.b, y.b)}; }
PENSTOCK_INLINE V Sub(V x, V y) { return {_mm256_sub_ps(x.a, y.a), _mm256_sub_ps(x.b, y.b)}; }
PENSTOCK_INLINE V Mul(V x, V y) { return {_mm256_mul_ps(x.a, y.a), _mm256_mul_ps(x.b, y.b)}; }
PENSTOCK_INLINE V Div(V x, V y) { return {_mm256_div_ps(x.a, y.a), _mm256_div_ps(x.b, y.b)}; }
PENSTOCK_INLINE V Max(V x, V y) { return {_mm256_max_ps(x.a, y.a), _mm256_max_ps(x.b, y.b)}; }
PENSTOCK_INLINE V Min(V x, V y) { return {_mm256_min_ps(x.a, y.a), _mm256_min_ps(x.b, y.b)}; }

PENSTOCK_INLINE __m128i Load128(const void* p) {
  return _mm_loadu_si128(static_cast<const __m128i*>(p));
}
PENSTOCK_INLINE V LoadHalf(const uint16_t* p) {
  return {_mm256_cvtph_ps(Load128(p)), _mm256_cvtph_ps(Load128(p + 8))};
}
PENSTOCK_INLINE V LoadBf16(const uint16_t* p) {
  return {_mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(Load128(p)), 16)),
          _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(Load128(p + 8)), 16))};
}
PENSTOCK_INLINE V LoadUint8(const uint8_t* p) {
  const __m128i v = Load128(p);
  return {_mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(v)),
          _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_srli_si128(v, 8)))};
}
PENSTOCK_INLINE V LoadInt8(const uint8_t* p) {
  const __m128i v = Load128(p);
  return {_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(v)),
          _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_srli_si128(v, 8)))};
}

PENSTOCK_INLINE I LoadWords(const uint8_t* p) {
  return {_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)),
          _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p + 32))};
}
template <int kShift, uint32_t kMask>
PENSTOCK_INLINE I Field(I x) {
  if constexpr (kShift > 0) x = {_mm256_srli_epi32(x.a, kShift), _mm256_srli_epi32(x.b, kShift)};
  if constexpr (kMask << kShift >> kShift == kMask &&
                (kMask << kShift | ((1u << kShift) - 1)) == 0xFFFFFFFFu) {
    return x;  // the topmost field needs no mask
  } else {
    const __m256i mask = _mm256_set1_epi32(static_cast<int>(kMask));
    return {_mm256_and_si256(x.a, mask), _mm256_and_si256(x.b, mask)};
  }
}
PENSTOCK_INLINE I Join4(I low, I high) {
  return {_mm256_or_si256(low.a, _mm256_slli_epi32(high.a, 4)),
          _mm256_or_si256(low.b, _mm256_slli_epi32(high.b, 4))};
}
PENSTOCK_INLINE V ToFloat(I x) { return {_mm256_cvtepi32_ps(x.a), _mm256_cvtepi32_ps(x.b)}; }
// Field kIndex of kBits bits where it stands, 2^(kBits * kIndex) times too large; the topmost,
// whose first bit would be a sign, at the low end. Exact in either form.
template <int kIndex, int kBits>
PENSTOCK_INLINE V PlacedField(I x) {
  constexpr uint32_t kMask = (1u << kBits) - 1;
  constexpr int kAt = kIndex * kBits;
  if constexpr (kAt + kBits == 32) return ToFloat(Field<kAt, kMask>(x));
  return ToFloat(Field<0, kMask << kAt>(x));
}
inline constexpr bool kNibblesInPlace = true;
template <int kIndex>
PENSTOCK_INLINE V NibbleToFloat(I x) {
  return PlacedField<kIndex, 4>(x);
}
inline constexpr bool kBytesInPlace = true;
template <int kIndex>
PENSTOCK_INLINE V ByteToFloat(I x) {
  return PlacedField<kIndex, 8>(x);
}
PENSTOCK_INLINE __m256 PowerOf(__m256 magic) {
  const __m256i bits = _mm256_add_epi32(_mm256_castps_si256(magic), _mm256_set1_epi32(127));
  return _mm256_castsi256_ps(_mm256_slli_epi32(bits, 23));
}
PENSTOCK_INLINE V ScaleByPower(V x, V magic) {
  return {_mm256_mul_ps(x.a, PowerOf(magic.a)), _mm256_mul_ps(x.b, PowerOf(magic.b))};
}
PENSTOCK_INLINE V Abs(V x) {
  const __m256 sign = _mm256_set1_ps(-0.0f);
  return {_mm256_andnot_ps(sign, x.a), _mm256_andnot_ps(sign, x.b)};
}
PENSTOCK_INLINE V CopySign(V x, V y) {
  const __m256 sign = _mm256_set1_ps(-0.0f);
  return {_mm256_or_ps(_mm256_andnot_ps(sign, x.a), _mm256_and_ps(sign, y.a)),
          _mm256_or_ps(_mm256_andnot_ps(sign, x.b), _mm256_and_ps(sign, y.b))};
}

PENSTOCK_INLINE float SumLanes(V x) {
  const __m256 s8 = _mm256_add_ps(x.a, x.b);
  const __m128 s4 = _mm_add_ps(_mm256_castps256_ps128(s8), _mm256_extractf128_ps(s8, 1));
  const __m128 s2 = _mm_add_ps(s4, _mm_movehl_ps(s4, s4));
  return _mm_cvtss_f32(_mm_add_ss(s2, _mm_shuffle_ps(s2, s2, 1)));
}
PENSTOCK_INLINE float MaxLanes(V x) {
  const __m256 s8 = _mm256_max_ps(x.a, x.b);
  const __m128 s4 = _mm_max_ps(_mm256_castps256_ps128(s8), _mm256_extractf128_ps(s8, 1));
  const __m128 s2 = _mm_max_ps(s4, _mm_movehl_ps(s4, s4));
  return _mm_cvtss_f32(_mm_max_ss(s2, _mm_shuffle_ps(s2, s2, 1)));
}
