// Paged attention against plain double-precision loops, and the same bits however the sequence is
// cut into steps, on every instruction set, with any number of threads.

#include "kernels/cpu/attention.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "cpu_test.h"
#include "gtest/gtest.h"

namespace penstock::kernels {
namespace {

struct Shape {
  int32_t heads, kv_heads, dim, block_size, window;
};

// A sequence with its K and V in scattered blocks of a cache.
struct Fixture {
  Fixture(const Shape& s, int32_t length)
      : shape(s), layout{2, s.kv_heads, s.dim, s.block_size}, tokens(length) {
    q = RandomFloats(static_cast<size_t>(length * s.heads * s.dim), 1, 0.3f);
    k = RandomFloats(static_cast<size_t>(length * s.kv_heads * s.dim), 2);
    v = RandomFloats(static_cast<size_t>(length * s.kv_heads * s.dim), 3);
    const int32_t count = (length + s.block_size - 1) / s.block_size;
    // Whatever is not written is NaN: no result may touch it.
    cache.assign(static_cast<size_t>(layout.block_floats() * (2 * count + 2)),
                 std::numeric_limits<float>::quiet_NaN());
    for (int32_t b = 0; b < count; ++b) blocks.push_back(2 * (count - b));
    for (int32_t t = 0; t < length; ++t) {
      float* block =
          cache.data() + blocks[static_cast<size_t>(t / s.block_size)] * layout.block_floats();
      const int32_t at = t % s.block_size;
      for (int32_t h = 0; h < s.kv_heads; ++h) {
        for (int32_t d = 0; d < s.dim; ++d) {
          const auto from = static_cast<size_t>((t * s.kv_heads + h) * s.dim + d);
          block[layout.k_offset(1, h) + d * s.block_size + at] = k[from];
          block[layout.v_offset(1, h) + at * s.dim + d] = v[from];
        }
      }
    }
  }

  AttentionParams params() const {
    return {.layout = layout,
            .cache = cache.data(),
            .layer = 1,
            .num_heads = shape.heads,
            .window = shape.window};
  }

  // The results of the query tokens [first, last), computed in steps of `chunk` tokens.
  std::vector<float> Run(Isa isa, int threads, int32_t first, int32_t last, int32_t chunk) const {
    ThreadPool pool(threads);
    Attention attention(KernelsFor(isa), pool);
    const int64_t width = static_cast<int64_t>(shape.heads) * shape.dim;
    std::vector<float> out(static_cast<size_t>((last - first) * width));
    for (int32_t from = first; from < last; from += chunk) {
      const AttentionSequence sequence = {.first_token = 0,
                                          .num_tokens = std::min(chunk, last - from),
                                          .start_position = from,
                                          .blocks = blocks.data()};
      AttentionParams p = params();
      attention.Plan({&sequence, 1}, p);
      p.q = q.data() + from * width;
      p.out = out.data() + (from - first) * width;
      attention.Run(p);
    }
    return out;
  }

  double Expected(int32_t token, int32_t head, int32_t d) const {
    const int32_t kv = head / (shape.heads / shape.kv_heads);
    const int32_t first = shape.window > 0 ? std::max(0, token - shape.window + 1) : 0;
    double total = 0;
    double sum = 0;
    for (int32_t t = first; t <= token; ++t) {
      double score = 0;
      for (int32_t i = 0; i < shape.dim; ++i) {
        score +=
            static_cast<double>(
                q[static_cast<size_t>((token * shape.heads + head) * shape.dim + i)]) *
            static_cast<double>(k[static_cast<size_t>((t * shape.kv_heads + kv) * shape.dim + i)]);
      }
      const double weight = std::exp(score);
      total += weight;
      sum += weight *
             static_cast<double>(v[static_cast<size_t>((t * shape.kv_heads + kv) * shape.dim + d)]);
    }
    return sum / total;
  }

  Shape shape;
  PagedKvLayout layout;
  int32_t tokens;
  std::vector<float> q, k, v, cache;
  std::vector<int32_t> blocks;
};

class AttentionShapes : public ::testing::TestWithParam<Shape> {};

TEST_P(AttentionShapes, MatchesDoublePrecision) {
  const Fixture f(GetParam(), 150);
  for (const Isa isa : IsasHere()) {
    const std::vector<float> out = f.Run(isa, 1, 0, f.tokens, 150);
    for (const int32_t t : {0, 1, 15, 16, 63, 64, 65, 127, 128, 149}) {
      for (int32_t h = 0; h < f.shape.heads; ++h) {
        for (int32_t d = 0; d < f.shape.dim; ++d) {
          ASSERT_NEAR(out[static_cast<size_t>((t * f.shape.heads + h) * f.shape.dim + d)],
                      f.Expected(t, h, d), 2e-5)
              << KernelsFor(isa).name << " token " << t << " head " << h << " dim " << d;
        }
      }
    }
  }
}

TEST_P(AttentionShapes, BitsDoNotDependOnTheCut) {
  const Fixture f(GetParam(), 150);
  const std::vector<float> whole = f.Run(DetectIsa(), 1, 0, f.tokens, 150);
  for (const Isa isa : IsasHere()) {
    for (const int32_t chunk : {1, 7, 16, 64, 100}) {
      for (const int threads : {1, 3}) {
        EXPECT_TRUE(SameBits(f.Run(isa, threads, 0, f.tokens, chunk), whole))
            << KernelsFor(isa).name << " chunk " << chunk << " threads " << threads;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, AttentionShapes,
                         ::testing::Values(Shape{9, 3, 64, 16, 0}, Shape{4, 4, 16, 16, 0},
                                           Shape{8, 1, 32, 32, 0}, Shape{2, 1, 128, 64, 0},
                                           Shape{6, 2, 48, 16, 20}, Shape{3, 3, 80, 32, 70}));

}  // namespace
}  // namespace penstock::kernels
