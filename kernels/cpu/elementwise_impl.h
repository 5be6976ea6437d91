// Norms, activations, RoPE, attention tiles and reductions. Included inside an instruction set's
// namespace, after linear_impl.h. A row's end that does not fill sixteen lanes is padded with
// zeros, so every length takes the same path.

inline V LoadPart(const float* p, int64_t count) {
  if (count >= 16) return Load(p);
  float lanes[16] = {};
  for (int64_t i = 0; i < count; ++i) lanes[i] = p[i];
  return Load(lanes);
}
inline void StorePart(float* p, V v, int64_t count) {
  if (count >= 16) return Store(p, v);
  float lanes[16];
  Store(lanes, v);
  for (int64_t i = 0; i < count; ++i) p[i] = lanes[i];
}
inline float FirstLane(V v) {
  float lanes[16];
  Store(lanes, v);
  return lanes[0];
}

// Relative error below 2e-7; inputs under -87 give about 1e-38, NaN stays NaN.
inline V Exp(V x) {
  x = Min(Set1(88.0f), Max(Set1(-87.0f), x));
  const V magic = Set1(12582912.0f);  // 1.5 * 2^23
  const V shifted = Fma(x, Set1(1.44269504f), magic);
  const V n = Sub(shifted, magic);
  // ln 2 in two parts, the first with few enough bits that n * it is exact.
  V r = Fma(n, Set1(-0.693359375f), x);
  r = Fma(n, Set1(2.12194440e-4f), r);
  V p = Set1(1.0f / 5040.0f);
  p = Fma(p, r, Set1(1.0f / 720.0f));
  p = Fma(p, r, Set1(1.0f / 120.0f));
  p = Fma(p, r, Set1(1.0f / 24.0f));
  p = Fma(p, r, Set1(1.0f / 6.0f));
  p = Fma(p, r, Set1(0.5f));
  p = Fma(p, r, Set1(1.0f));
  p = Fma(p, r, Set1(1.0f));
  return ScaleByPower(p, shifted);
}

inline V Sigmoid(V x) { return Div(Set1(1.0f), Add(Set1(1.0f), Exp(Sub(Set1(0.0f), x)))); }

// Absolute error below 2e-7: Abramowitz and Stegun 7.1.26.
inline V Erf(V x) {
  const V a = Abs(x);
  const V t = Div(Set1(1.0f), Fma(a, Set1(0.3275911f), Set1(1.0f)));
  V p = Set1(1.061405429f);
  p = Fma(p, t, Set1(-1.453152027f));
  p = Fma(p, t, Set1(1.421413741f));
  p = Fma(p, t, Set1(-0.284496736f));
  p = Fma(p, t, Set1(0.254829592f));
  p = Mul(p, t);
  const V e = Exp(Sub(Set1(0.0f), Mul(a, a)));
  return CopySign(Sub(Set1(1.0f), Mul(p, e)), x);
}

inline V Activate(GateActivation activation, V x) {
  if (activation == GateActivation::kSilu) return Mul(x, Sigmoid(x));
  if (activation == GateActivation::kGelu) {
    const V erf = Erf(Mul(x, Set1(0.707106781f)));
    return Mul(Mul(Set1(0.5f), x), Add(Set1(1.0f), erf));
  }
  // 0.5 * (1 + tanh(u)) = sigmoid(2u), u = sqrt(2 / pi) * (x + 0.044715 x^3)
  const V cube = Mul(Mul(x, x), x);
  return Mul(x, Sigmoid(Mul(Fma(cube, Set1(0.044715f), x), Set1(2.0f * 0.797884561f))));
}

float InverseRms(const float* x, int64_t n, float eps) {
  V sum = Set1(0.0f);
  for (int64_t i = 0; i < n; i += 16) {
    const V v = LoadPart(x + i, n - i);
    sum = Fma(v, v, sum);
  }
  return 1.0f / __builtin_sqrtf(SumLanes(sum) / static_cast<float>(n) + eps);
}

void RmsNorm(const float* x, const float* weight, float* out, int64_t n, float eps) {
  const V scale = Set1(InverseRms(x, n, eps));
  for (int64_t i = 0; i < n; i += 16) {
    const V v = Mul(Mul(LoadPart(x + i, n - i), scale), LoadPart(weight + i, n - i));
    StorePart(out + i, v, n - i);
  }
}

void Gate(GateActivation activation, const float* gate, const float* up, float* out, int64_t n) {
  for (int64_t i = 0; i < n; i += 16) {
    const V act = Activate(activation, LoadPart(gate + i, n - i));
    StorePart(out + i, Mul(act, LoadPart(up + i, n - i)), n - i);
  }
}

void AddRows(const float* a, const float* b, float* out, int64_t n) {
  for (int64_t i = 0; i < n; i += 16) {
    StorePart(out + i, Add(LoadPart(a + i, n - i), LoadPart(b + i, n - i)), n - i);
  }
}

void RopeHead(const RopeHeadArgs& args) {
  const int32_t half = args.rotary_dim / 2;
  const V norm_scale =
      Set1(args.norm != nullptr ? InverseRms(args.in, args.head_dim, args.eps) : 1.0f);
  const V scale = Set1(args.scale);
  const auto load = [&](int32_t i, int32_t count) PENSTOCK_LAMBDA_INLINE {
    const V v = LoadPart(args.in + i, count);
    if (args.norm == nullptr) return v;
    return Mul(Mul(v, norm_scale), LoadPart(args.norm + i, count));
  };
  for (int32_t i = 0; i < half; i += 16) {
    const int32_t count = half - i;
    const V first = load(i, count);
    const V second = load(half + i, count);
    const V cos = LoadPart(args.cos + i, count);
    const V sin = LoadPart(args.sin + i, count);
    const V rotated = Fma(first, cos, Sub(Set1(0.0f), Mul(second, sin)));
    StorePart(args.out + half + i, Mul(Fma(second, cos, Mul(first, sin)), scale), count);
    StorePart(args.out + i, Mul(rotated, scale), count);
  }
  for (int32_t i = 2 * half; i < args.head_dim; i += 16) {
    StorePart(args.out + i, Mul(load(i, args.head_dim - i), scale), args.head_dim - i);
  }
}

// Scores of one row to weights exp(score - max), zero outside [begin, end).
inline void SoftmaxRow(float* scores, int32_t begin, int32_t end, float* max, float* sum) {
  for (int32_t i = 0; i < begin; ++i) scores[i] = -__builtin_inff();
  for (int32_t i = end; i < kAttentionTile; ++i) scores[i] = -__builtin_inff();
  V largest = Load(scores);
  for (int32_t i = 16; i < kAttentionTile; i += 16) largest = Max(largest, Load(scores + i));
  *max = MaxLanes(largest);
  const V shift = Set1(*max);
  for (int32_t i = 0; i < kAttentionTile; i += 16) {
    Store(scores + i, Exp(Sub(Load(scores + i), shift)));
  }
  for (int32_t i = 0; i < begin; ++i) scores[i] = 0;
  for (int32_t i = end; i < kAttentionTile; ++i) scores[i] = 0;
  V total = Load(scores);
  for (int32_t i = 16; i < kAttentionTile; i += 16) total = Add(total, Load(scores + i));
  *sum = SumLanes(total);
}

void AttentionTile(const AttentionTileArgs& args) {
  int32_t first = kAttentionTile;  // positions that any row sees
  int32_t last = 0;
  for (int32_t r = 0; r < args.rows; ++r) {
    if (args.begin[r] >= args.end[r]) continue;
    if (args.begin[r] < first) first = args.begin[r];
    if (args.end[r] > last) last = args.end[r];
  }
  for (int32_t b = first / args.block_size; b * args.block_size < last; ++b) {
    const TileArgs tile = {.a = args.q,
                           .a_stride = args.head_dim,
                           .b = args.k_blocks + b,
                           .b_stride = args.block_size,
                           .block_rows = args.head_dim,
                           .k0 = 0,
                           .k1 = args.head_dim,
                           .c = args.scores + b * args.block_size,
                           .c_stride = kAttentionTile,
                           .accumulate = false};
    MultiplyTile(tile, args.rows, args.block_size);
  }
  for (int32_t r = 0; r < args.rows; ++r) {
    float* scores = args.scores + static_cast<int64_t>(r) * kAttentionTile;
    if (args.begin[r] < args.end[r]) {
      SoftmaxRow(scores, args.begin[r], args.end[r], args.max + r, args.sum + r);
      continue;
    }
    args.max[r] = -__builtin_inff();
    args.sum[r] = 0;
    for (int32_t i = 0; i < kAttentionTile; ++i) scores[i] = 0;
  }
  const TileArgs tile = {.a = args.scores,
                         .a_stride = kAttentionTile,
                         .b = args.v_blocks,
                         .b_stride = args.head_dim,
                         .block_rows = args.block_size,
                         .k0 = first,
                         .k1 = last,
                         .c = args.out,
                         .c_stride = args.head_dim,
                         .accumulate = false};
  MultiplyTile(tile, args.rows, args.head_dim);
}

void AttentionMerge(float* out, float* max, float* sum, const float* tile_out, float tile_max,
                    float tile_sum, int32_t head_dim) {
  if (tile_sum == 0) return;
  if (*sum == 0) {
    for (int32_t i = 0; i < head_dim; i += 16) Store(out + i, Load(tile_out + i));
    *max = tile_max;
    *sum = tile_sum;
    return;
  }
  const float largest = *max > tile_max ? *max : tile_max;
  const V old_scale = Exp(Set1(*max - largest));
  const V new_scale = Exp(Set1(tile_max - largest));
  for (int32_t i = 0; i < head_dim; i += 16) {
    Store(out + i, Fma(Load(out + i), old_scale, Mul(Load(tile_out + i), new_scale)));
  }
  *sum = FirstLane(Fma(Set1(*sum), old_scale, Mul(Set1(tile_sum), new_scale)));
  *max = largest;
}

void AttentionFinish(const float* acc, float sum, float* out, int32_t head_dim) {
  const V divisor = Set1(sum);
  for (int32_t i = 0; i < head_dim; i += 16) Store(out + i, Div(Load(acc + i), divisor));
}

float MaxFinite(const float* x, int64_t n, bool* finite) {
  V largest = Set1(x[0]);
  V zero = Set1(0.0f);  // becomes NaN with the first NaN or infinity
  for (int64_t i = 0; i < n; i += 16) {
    float lanes[16];
    const float* p = x + i;
    if (n - i < 16) {
      for (int64_t l = 0; l < 16; ++l) lanes[l] = l < n - i ? p[l] : x[0];
      p = lanes;
    }
    const V v = Load(p);
    largest = Max(largest, v);
    zero = Fma(v, Set1(0.0f), zero);
  }
  *finite = SumLanes(zero) == 0.0f;
  return MaxLanes(largest);
}

float ExpSum(const float* x, float shift, float scale, float* out, int64_t n) {
  V sum = Set1(0.0f);
  for (int64_t i = 0; i < n; i += 16) {
    const V e = Exp(Mul(Sub(LoadPart(x + i, n - i), Set1(shift)), Set1(scale)));
    StorePart(out + i, e, n - i);
    sum = Add(sum, LoadPart(out + i, n - i));
  }
  return SumLanes(sum);
}

inline constexpr CpuKernels MakeTable(const char* name) {
  return {.name = name,
          .linear_panel = LinearPanel,
          .dequantize_panel = DequantizePanel,
          .rms_norm = RmsNorm,
          .gate = Gate,
          .add = AddRows,
          .rope_head = RopeHead,
          .attention_tile = AttentionTile,
          .attention_merge = AttentionMerge,
          .attention_finish = AttentionFinish,
          .max_finite = MaxFinite,
          .exp_sum = ExpSum};
}
