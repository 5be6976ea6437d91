// Linear layers over packed weights. Included inside an instruction set's namespace, after
// vec16_*.h.
//
// One row of x: each weight vector is decoded in registers and used at once, so a panel is read as
// one stream (bound by that stream, or by about five vector operations per 8 or 16 weights).
// Several rows: 256 inputs of a panel are decoded once into a 32 KB tile, then a register tile of
// sums runs over it (bound by multiply-adds). Either way each output is one chain of fma(x, w,
// sum), inputs ascending, with w rounded the same way: the bits do not depend on the number of
// rows.

struct V2 {
  V v[2];
};

template <int... kIs>
struct Indices {};
template <int kCount, int... kIs>
struct MakeIndices : MakeIndices<kCount - 1, kCount - 1, kIs...> {};
template <int... kIs>
struct MakeIndices<0, kIs...> {
  using type = Indices<kIs...>;
};
template <int kValue>
struct Index {
  static constexpr int value = kValue;
};
template <typename Fn, int... kIs>
PENSTOCK_INLINE void UnrollImpl(Indices<kIs...>, Fn&& fn) {
  (fn(Index<kIs>{}), ...);
}
// fn(Index<0>{}), fn(Index<1>{}), ...
template <int kCount, typename Fn>
PENSTOCK_INLINE void Unroll(Fn&& fn) {
  UnrollImpl(typename MakeIndices<kCount>::type{}, fn);
}

inline constexpr int kHalfRow = 2 * kPanel;  // bytes of one f16 per output
inline constexpr int kWordRow = 4 * kPanel;  // bytes of one u32 per output

inline V LoadHalves(const uint8_t* p) {
  return LoadHalf(reinterpret_cast<const uint16_t*>(__builtin_assume_aligned(p, 2)));
}

// A panel is one straight stream, but across pages and between panels the hardware's prefetchers
// lose it. This far ahead covers memory's latency at the speed of one core.
inline constexpr int kPrefetchAhead = 4096;
PENSTOCK_INLINE void Prefetch(const uint8_t* p, int bytes) {
  for (int at = 0; at < bytes; at += 64) __builtin_prefetch(p + kPrefetchAhead + at);
}

// The four-bit part of 32 inputs, with 4, 5 or 6 bits in all: q -> fma(q, d, m).
// fn(input, w) with w the two weight vectors. kHigh: 0, 1 (fifth bits) or 2 (two more bits).
template <int kHigh, typename Fn>
PENSTOCK_INLINE void DecodeWords(const uint8_t* high, const uint8_t* words, const V2 (&d)[2],
                                 const V2 (&m)[2], Fn& fn) {
#ifdef PENSTOCK_RUNTIME_FIELDS
  for (int k = 0; k < 32; ++k) {
    V2 w;
    for (int v = 0; v < 2; ++v) {
      I q = FieldAt(LoadWords(words + k % 4 * kWordRow + 64 * v), 4 * (k / 4), 15);
      if constexpr (kHigh == 1) q = Join4(q, FieldAt(LoadWords(high + 64 * v), k, 1));
      if constexpr (kHigh == 2) {
        const uint8_t* bits = high + k / 16 * kWordRow + 64 * v;
        q = Join4(q, FieldAt(LoadWords(bits), 2 * (k % 16), 3));
      }
      const int scale = kHigh == 2 ? k / 16 : 0;
      w.v[v] = Fma(ToFloat(q), d[scale].v[v], m[scale].v[v]);
    }
    fn(k, w);
  }
#else
  V2 placed = d[0];  // d / 16^i: a nibble that stays in its place is 16^i times too large
  Unroll<8>([&](auto i) PENSTOCK_LAMBDA_INLINE {
    constexpr int kI = decltype(i)::value;
    if constexpr (kHigh == 0 && kNibblesInPlace && kI > 0) {
      // The topmost would be a sign: that one is shifted down.
      const V step = Set1(1.0f / 16.0f);
      placed = kI == 7 ? d[0] : V2{{Mul(placed.v[0], step), Mul(placed.v[1], step)}};
    }
    Unroll<4>([&](auto j) PENSTOCK_LAMBDA_INLINE {
      constexpr int kJ = decltype(j)::value;
      constexpr int kInput = 4 * kI + kJ;
      const I w0 = LoadWords(words + kJ * kWordRow);
      const I w1 = LoadWords(words + kJ * kWordRow + 64);
      if constexpr (kHigh == 0) {
        fn(kInput, V2{{Fma(NibbleToFloat<kI>(w0), placed.v[0], m[0].v[0]),
                       Fma(NibbleToFloat<kI>(w1), placed.v[1], m[0].v[1])}});
        return;
      }
      constexpr int kScale = kHigh == 2 ? kInput / 16 : 0;
      constexpr int kHighShift = kHigh == 2 ? 2 * (kInput % 16) : kInput;
      constexpr uint32_t kHighMask = kHigh == 2 ? 3 : 1;
      const uint8_t* bits = high + kScale * kWordRow;
      const V q0 =
          ToFloat(Join4(Field<4 * kI, 15>(w0), Field<kHighShift, kHighMask>(LoadWords(bits))));
      const V q1 =
          ToFloat(Join4(Field<4 * kI, 15>(w1), Field<kHighShift, kHighMask>(LoadWords(bits + 64))));
      fn(kInput,
         V2{{Fma(q0, d[kScale].v[0], m[kScale].v[0]), Fma(q1, d[kScale].v[1], m[kScale].v[1])}});
    });
  });
#endif
}

// Each format: Visit(panel, k0, k1, fn) calls fn(k, w) for the inputs [k0, k1), ascending.
template <bool kHasMin, int kHigh>
struct NibbleFormat {
  static constexpr int kBytes =
      kHalfRow * (kHasMin ? 2 : 1) + (kHigh != 0 ? kWordRow : 0) + 4 * kWordRow;
  template <typename Fn>
  static PENSTOCK_INLINE void Visit(const uint8_t* panel, int64_t k0, int64_t k1, Fn&& fn) {
    for (int64_t k = k0; k < k1; k += 32) {
      const uint8_t* p = panel + k / 32 * kBytes;
      Prefetch(p, kBytes);
      V2 d[2], m[2];
      d[0] = {{LoadHalves(p), LoadHalves(p + kHalfRow / 2)}};
      p += kHalfRow;
      if constexpr (kHasMin) {
        m[0] = {{LoadHalves(p), LoadHalves(p + kHalfRow / 2)}};
        p += kHalfRow;
      } else {
        const V center = Set1(kHigh != 0 ? -16.0f : -8.0f);
        m[0] = {{Mul(d[0].v[0], center), Mul(d[0].v[1], center)}};
      }
      const uint8_t* high = p;
      if constexpr (kHigh != 0) p += kWordRow;
      auto at = [&](int input, V2 w) PENSTOCK_LAMBDA_INLINE { fn(k + input, w); };
      DecodeWords<kHigh>(high, p, d, m, at);
    }
  }
};

struct ByteFormat {
  static constexpr int kBytes = kHalfRow + 8 * kWordRow;
  template <typename Fn>
  static PENSTOCK_INLINE void Visit(const uint8_t* panel, int64_t k0, int64_t k1, Fn&& fn) {
    for (int64_t k = k0; k < k1; k += 32) {
      const uint8_t* p = panel + k / 32 * kBytes;
      Prefetch(p, kBytes);
      const V2 d = {{LoadHalves(p), LoadHalves(p + kHalfRow / 2)}};
      const V center = Set1(-128.0f);
      const V m0 = Mul(d.v[0], center);
      const V m1 = Mul(d.v[1], center);
      V2 placed = d;  // as in DecodeWords
      Unroll<4>([&](auto i) PENSTOCK_LAMBDA_INLINE {
        constexpr int kI = decltype(i)::value;
        if constexpr (kBytesInPlace && kI > 0) {
          const V step = Set1(1.0f / 256.0f);
          placed = kI == 3 ? d : V2{{Mul(placed.v[0], step), Mul(placed.v[1], step)}};
        }
        const uint8_t* words = p + kHalfRow;
        Unroll<8>([&](auto j) PENSTOCK_LAMBDA_INLINE {
          constexpr int kJ = decltype(j)::value;
          const V q0 = ByteToFloat<kI>(LoadWords(words + kJ * kWordRow));
          const V q1 = ByteToFloat<kI>(LoadWords(words + kJ * kWordRow + 64));
          fn(k + 8 * kI + kJ, V2{{Fma(q0, placed.v[0], m0), Fma(q1, placed.v[1], m1)}});
        });
      });
    }
  }
};

template <int kHigh>  // Q4_K, Q5_K
struct SuperFormat {
  static constexpr int kGroupBytes = 2 * kPanel + (kHigh + 4) * kWordRow;
  template <typename Fn>
  static PENSTOCK_INLINE void Visit(const uint8_t* panel, int64_t k0, int64_t k1, Fn&& fn) {
    for (int64_t k = k0; k < k1; k += 32) {
      const uint8_t* block = panel + k / 256 * (2 * kHalfRow + 8 * kGroupBytes);
      const uint8_t* p = block + 2 * kHalfRow + k % 256 / 32 * kGroupBytes;
      Prefetch(p, kGroupBytes);
      V2 d[2], m[2];
      for (int v = 0; v < 2; ++v) {
        const uint8_t* halves = block + v * (kHalfRow / 2);
        d[0].v[v] = Mul(LoadHalves(halves), LoadUint8(p + 16 * v));
        m[0].v[v] =
            Sub(Set1(0.0f), Mul(LoadHalves(halves + kHalfRow), LoadUint8(p + kPanel + 16 * v)));
      }
      p += 2 * kPanel;
      const uint8_t* high = p;
      if constexpr (kHigh != 0) p += kWordRow;
      auto at = [&](int input, V2 w) PENSTOCK_LAMBDA_INLINE { fn(k + input, w); };
      DecodeWords<kHigh>(high, p, d, m, at);
    }
  }
};

struct SixBitFormat {
  static constexpr int kGroupBytes = 2 * kPanel + 6 * kWordRow;
  template <typename Fn>
  static PENSTOCK_INLINE void Visit(const uint8_t* panel, int64_t k0, int64_t k1, Fn&& fn) {
    for (int64_t k = k0; k < k1; k += 32) {
      const uint8_t* block = panel + k / 256 * (kHalfRow + 8 * kGroupBytes);
      const uint8_t* p = block + kHalfRow + k % 256 / 32 * kGroupBytes;
      Prefetch(p, kGroupBytes);
      V2 d[2], m[2];
      for (int half = 0; half < 2; ++half) {
        for (int v = 0; v < 2; ++v) {
          d[half].v[v] =
              Mul(LoadHalves(block + v * (kHalfRow / 2)), LoadInt8(p + half * kPanel + 16 * v));
          m[half].v[v] = Mul(d[half].v[v], Set1(-32.0f));
        }
      }
      const uint8_t* high = p + 2 * kPanel;
      auto at = [&](int input, V2 w) PENSTOCK_LAMBDA_INLINE { fn(k + input, w); };
      DecodeWords<2>(high, high + 2 * kWordRow, d, m, at);
    }
  }
};

enum class PlainKind { kF32, kF16, kBF16 };
template <PlainKind kKind>
struct PlainFormat {
  template <typename Fn>
  static PENSTOCK_INLINE void Visit(const uint8_t* panel, int64_t k0, int64_t k1, Fn&& fn) {
    for (int64_t k = k0; k < k1; ++k) {
      if constexpr (kKind == PlainKind::kF32) {
        const float* p = reinterpret_cast<const float*>(panel) + k * kPanel;
        fn(k, V2{{Load(p), Load(p + 16)}});
      } else {
        const uint16_t* p = reinterpret_cast<const uint16_t*>(panel) + k * kPanel;
        if constexpr (kKind == PlainKind::kF16) {
          fn(k, V2{{LoadHalf(p), LoadHalf(p + 16)}});
        } else {
          fn(k, V2{{LoadBf16(p), LoadBf16(p + 16)}});
        }
      }
    }
  }
};

template <typename Format>
void OneRow(const uint8_t* panel, int64_t inputs, const float* x, float* c) {
  V sum0 = Set1(0.0f);
  V sum1 = sum0;
  Format::Visit(panel, 0, inputs, [&](int64_t k, V2 w) PENSTOCK_LAMBDA_INLINE {
    const V xv = Set1(x[k]);
    sum0 = Fma(xv, w.v[0], sum0);
    sum1 = Fma(xv, w.v[1], sum1);
  });
  Store(c, sum0);
  Store(c + 16, sum1);
}

template <typename Format>
void DecodeTile(const uint8_t* panel, int64_t k0, int64_t k1, float* weights) {
  Format::Visit(panel, k0, k1, [&](int64_t k, V2 w) PENSTOCK_LAMBDA_INLINE {
    float* to = weights + (k - k0) * kPanel;
    Store(to, w.v[0]);
    Store(to + 16, w.v[1]);
  });
}

// c[kRows][kVectors * 16] (+)= a[kRows][k] * b[k][...], where b comes in blocks of rows.
struct TileArgs {
  const float* a;
  int64_t a_stride;
  const float* const* b;  // block i holds rows [i * block_rows, (i + 1) * block_rows)
  int64_t b_stride;
  int32_t block_rows;
  int32_t k0, k1;  // rows of b to use
  float* c;
  int64_t c_stride;
  bool accumulate;
};

template <int kRows, int kVectors>
void RegisterTile(const TileArgs& t, int64_t column) {
  V sum[kRows][kVectors];
  Unroll<kRows>([&](auto r) PENSTOCK_LAMBDA_INLINE {
    Unroll<kVectors>([&](auto v) PENSTOCK_LAMBDA_INLINE {
      constexpr int kR = decltype(r)::value;
      constexpr int kV = decltype(v)::value;
      sum[kR][kV] = t.accumulate ? Load(t.c + kR * t.c_stride + column + 16 * kV) : Set1(0.0f);
    });
  });
  for (int32_t k = t.k0; k < t.k1;) {
    const int32_t block = k / t.block_rows;
    const int32_t block_end = (block + 1) * t.block_rows;
    const int32_t stop = block_end < t.k1 ? block_end : t.k1;
    const float* b = t.b[block] + (k - block * t.block_rows) * t.b_stride + column;
    const float* a = t.a + k;
    for (; k < stop; ++k, ++a, b += t.b_stride) {
      V bv[kVectors];
      Unroll<kVectors>([&](auto v) PENSTOCK_LAMBDA_INLINE {
        bv[decltype(v)::value] = Load(b + 16 * decltype(v)::value);
      });
      Unroll<kRows>([&](auto r) PENSTOCK_LAMBDA_INLINE {
        constexpr int kR = decltype(r)::value;
        const V av = Set1(a[kR * t.a_stride]);
        Unroll<kVectors>([&](auto v) PENSTOCK_LAMBDA_INLINE {
          constexpr int kV = decltype(v)::value;
          sum[kR][kV] = Fma(av, bv[kV], sum[kR][kV]);
        });
      });
    }
  }
  Unroll<kRows>([&](auto r) PENSTOCK_LAMBDA_INLINE {
    Unroll<kVectors>([&](auto v) PENSTOCK_LAMBDA_INLINE {
      constexpr int kR = decltype(r)::value;
      constexpr int kV = decltype(v)::value;
      Store(t.c + kR * t.c_stride + column + 16 * kV, sum[kR][kV]);
    });
  });
}

template <int kRows>
void RowTile(const TileArgs& t, int64_t columns) {
  constexpr int kVectors = kRows <= kWideRows ? 2 : kTileVectors;
  int64_t column = 0;
  for (; column + 16 * kVectors <= columns; column += 16 * kVectors) {
    RegisterTile<kRows, kVectors>(t, column);
  }
  if (column < columns) RegisterTile<kRows, 1>(t, column);
}

// rows: 1..kTileRows.
template <int kRows = kTileRows>
inline void RowTileOf(int32_t rows, const TileArgs& t, int64_t columns) {
  if constexpr (kRows == 1) {
    RowTile<1>(t, columns);
  } else {
    if (rows == kRows) return RowTile<kRows>(t, columns);
    RowTileOf<kRows - 1>(rows, t, columns);
  }
}

// columns: a multiple of 16. Rows are split evenly over as few register tiles as cover them.
inline void MultiplyTile(TileArgs t, int32_t rows, int64_t columns) {
  const int32_t tiles = (rows + kTileRows - 1) / kTileRows;
  for (int32_t i = 0; i < tiles; ++i) {
    const int32_t count = (rows + tiles - 1 - i) / tiles;
    RowTileOf(count, t, columns);
    t.a += count * t.a_stride;
    t.c += count * t.c_stride;
  }
}

struct FormatFunctions {
  void (*one_row)(const uint8_t* panel, int64_t inputs, const float* x, float* c);
  void (*decode)(const uint8_t* panel, int64_t k0, int64_t k1, float* weights);
};
template <typename Format>
constexpr FormatFunctions FunctionsOf() {
  return {OneRow<Format>, DecodeTile<Format>};
}
inline constexpr FormatFunctions kFormats[] = {
    FunctionsOf<PlainFormat<PlainKind::kF32>>(),
    FunctionsOf<PlainFormat<PlainKind::kF16>>(),
    FunctionsOf<PlainFormat<PlainKind::kBF16>>(),
    FunctionsOf<NibbleFormat<false, 0>>(),
    FunctionsOf<NibbleFormat<true, 0>>(),
    FunctionsOf<NibbleFormat<false, 1>>(),
    FunctionsOf<NibbleFormat<true, 1>>(),
    FunctionsOf<ByteFormat>(),
    FunctionsOf<SuperFormat<0>>(),
    FunctionsOf<SuperFormat<1>>(),
    FunctionsOf<SixBitFormat>(),
};

void DequantizePanel(const PackedMatrix& w, int64_t panel, int64_t k0, int64_t k1, float* weights) {
  kFormats[static_cast<int>(w.format)].decode(w.data.get() + panel * w.panel_bytes, k0, k1,
                                              weights);
}

void LinearPanel(const PackedMatrix& w, int64_t panel, const float* x, int64_t x_stride,
                 int32_t rows, float* scratch, float* c) {
  const FormatFunctions& format = kFormats[static_cast<int>(w.format)];
  const uint8_t* data = w.data.get() + panel * w.panel_bytes;
  if (rows == 1) return format.one_row(data, w.num_inputs, x, c);
  for (int64_t k0 = 0; k0 < w.num_inputs; k0 += kTileInputs) {
    const int64_t k1 = k0 + kTileInputs < w.num_inputs ? k0 + kTileInputs : w.num_inputs;
    format.decode(data, k0, k1, scratch);
    const float* b = scratch;
    const TileArgs tile = {.a = x + k0,
                           .a_stride = x_stride,
                           .b = &b,
                           .b_stride = kPanel,
                           .block_rows = kTileInputs,
                           .k0 = 0,
                           .k1 = static_cast<int32_t>(k1 - k0),
                           .c = c,
                           .c_stride = kPanel,
                           .accumulate = k0 > 0};
    MultiplyTile(tile, rows, kPanel);
  }
}
