// Sixteen lanes as one AVX-512 register. The same bits as vec16_scalar.h, lane by lane.
// Included inside a namespace by kernels_avx512.cc only.

struct V {
  __m512 v;
};
struct I {
  __m512i v;
};

#define PENSTOCK_INLINE inline __attribute__((always_inline))
#define PENSTOCK_LAMBDA_INLINE __attribute__((always_inline))

inline constexpr int kTileRows = 12;    // 12 x 2 registers of sums, 2 of weights
inline constexpr int kTileVectors = 2;  // width in vectors of 16
inline constexpr int kWideRows = 12;

PENSTOCK_INLINE V Load(const float* p) { return {_mm512_loadu_ps(p)}; }
PENSTOCK_INLINE void Store(float* p, V x) { _mm512_storeu_ps(p, x.v); }
PENSTOCK_INLINE V Set1(float x) { return {_mm512_set1_ps(x)}; }
PENSTOCK_INLINE V Fma(V x, V y, V z) { return {_mm512_fmadd_ps(x.v, y.v, z.v)}; }
PENSTOCK_INLINE V Add(V x, V y) { return {_mm512_add_ps(x.v, y.v)}; }
PENSTOCK_INLINE V Sub(V x, V y) { return {_mm512_sub_ps(x.v, y.v)}; }
PENSTOCK_INLINE V Mul(V x, V y) { return {_mm512_mul_ps(x.v, y.v)}; }
PENSTOCK_INLINE V Div(V x, V y) { return {_mm512_div_ps(x.v, y.v)}; }
PENSTOCK_INLINE V Max(V x, V y) { return {_mm512_max_ps(x.v, y.v)}; }
PENSTOCK_INLINE V Min(V x, V y) { return {_mm512_min_ps(x.v, y.v)}; }

PENSTOCK_INLINE __m256i Load256(const void* p) {
  return _mm256_loadu_si256(static_cast<const __m256i*>(p));
}
PENSTOCK_INLINE __m128i Load128(const void* p) {
  return _mm_loadu_si128(static_cast<const __m128i*>(p));
}
PENSTOCK_INLINE V LoadHalf(const uint16_t* p) { return {_mm512_cvtph_ps(Load256(p))}; }
PENSTOCK_INLINE V LoadBf16(const uint16_t* p) {
  return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(Load256(p)), 16))};
}
PENSTOCK_INLINE V LoadUint8(const uint8_t* p) {
  return {_mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(Load128(p)))};
}
PENSTOCK_INLINE V LoadInt8(const uint8_t* p) {
  return {_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(Load128(p)))};
}

PENSTOCK_INLINE I LoadWords(const uint8_t* p) { return {_mm512_loadu_si512(p)}; }
template <int kShift, uint32_t kMask>
PENSTOCK_INLINE I Field(I x) {
  return {
      _mm512_and_si512(_mm512_srli_epi32(x.v, kShift), _mm512_set1_epi32(static_cast<int>(kMask)))};
}
PENSTOCK_INLINE I Join4(I low, I high) {
  return {_mm512_or_si512(low.v, _mm512_slli_epi32(high.v, 4))};
}
PENSTOCK_INLINE V ToFloat(I x) { return {_mm512_cvtepi32_ps(x.v)}; }
inline constexpr bool kNibblesInPlace = false;
// A table look-up reads only the low four bits of each index: no mask, no conversion.
template <int kIndex>
PENSTOCK_INLINE V NibbleToFloat(I x) {
  const __m512 table = _mm512_set_ps(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
  if constexpr (kIndex > 0) x.v = _mm512_srli_epi32(x.v, 4 * kIndex);
  return {_mm512_permutexvar_ps(x.v, table)};
}
// Where it stands, 256^kIndex times too large; the topmost, whose first bit would be a sign, at the
// low end.
inline constexpr bool kBytesInPlace = true;
template <int kIndex>
PENSTOCK_INLINE V ByteToFloat(I x) {
  if constexpr (kIndex == 3) return {_mm512_cvtepi32_ps(_mm512_srli_epi32(x.v, 24))};
  const __m512i mask = _mm512_set1_epi32(255 << (8 * kIndex));
  return {_mm512_cvtepi32_ps(_mm512_and_si512(x.v, mask))};
}
PENSTOCK_INLINE V ScaleByPower(V x, V magic) {
  const __m512i bits = _mm512_add_epi32(_mm512_castps_si512(magic.v), _mm512_set1_epi32(127));
  return {_mm512_mul_ps(x.v, _mm512_castsi512_ps(_mm512_slli_epi32(bits, 23)))};
}
PENSTOCK_INLINE V Abs(V x) { return {_mm512_abs_ps(x.v)}; }
PENSTOCK_INLINE V CopySign(V x, V y) {
  const __m512i sign = _mm512_set1_epi32(static_cast<int>(0x80000000u));
  const __m512i magnitude = _mm512_andnot_si512(sign, _mm512_castps_si512(x.v));
  const __m512i signs = _mm512_and_si512(sign, _mm512_castps_si512(y.v));
  return {_mm512_castsi512_ps(_mm512_or_si512(magnitude, signs))};
}

PENSTOCK_INLINE float SumLanes(V x) {
  const __m256 high = _mm256_castpd_ps(_mm512_extractf64x4_pd(_mm512_castps_pd(x.v), 1));
  const __m256 s8 = _mm256_add_ps(_mm512_castps512_ps256(x.v), high);
  const __m128 s4 = _mm_add_ps(_mm256_castps256_ps128(s8), _mm256_extractf128_ps(s8, 1));
  const __m128 s2 = _mm_add_ps(s4, _mm_movehl_ps(s4, s4));
  return _mm_cvtss_f32(_mm_add_ss(s2, _mm_shuffle_ps(s2, s2, 1)));
}
PENSTOCK_INLINE float MaxLanes(V x) {
  const __m256 high = _mm256_castpd_ps(_mm512_extractf64x4_pd(_mm512_castps_pd(x.v), 1));
  const __m256 s8 = _mm256_max_ps(_mm512_castps512_ps256(x.v), high);
  const __m128 s4 = _mm_max_ps(_mm256_castps256_ps128(s8), _mm256_extractf128_ps(s8, 1));
  const __m128 s2 = _mm_max_ps(s4, _mm_movehl_ps(s4, s4));
  return _mm_cvtss_f32(_mm_max_ss(s2, _mm_shuffle_ps(s2, s2, 1)));
}
