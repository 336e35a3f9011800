// Parts that all programs share: operands, masks and dropout. Fragments of scores are those of mma.m16n8k16: lane 4 g + t of a warp has
// columns 2 t and 2 t + 1 of rows g and g + 8.

typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

#define INLINE static __device__ __forceinline__

constexpr int THREADS = 32 * WARPS;
constexpr int ROWS_OF_WARP = 16 * TILES; // TILES is the number of fragments that a warp has along the rows
constexpr int ROWS = WARPS * ROWS_OF_WARP;
constexpr float LOG2E = 1.4426950408889634f;
#define INFINITE __int_as_float(0x7f800000)

// With a mask or a negative scale, scores are scaled before their maximum is taken. Otherwise scale and the base of the logarithm are one
// factor of the exponent.
constexpr bool SCALED = MASK != 0 || NEGATIVE;

// The arguments of a program.
struct parameters { u32 words[128]; };
struct buffer { void *at; u64 bytes; };

// A matrix is an operand [batch, heads, rows, columns]; its strides count elements.
struct matrix { u16 *at; u64 batch, head, row; };

// A rows is one head of a matrix.
struct rows { u16 *at; u64 row; };

struct problem {
  matrix q, k, v, o, g, dq, dk, dv; // g is the gradient of o
  float *lse;
  float2 *stats;                    // of each query: lse, and the sum of o g
  u32 queries, keys, heads, group, batches, blocks, padded; // group query heads share a key head; stats has padded rows for each head
  float scale, by;
  const void *mask;
  u64 mask_batch, mask_head, mask_query, mask_key;
  u64 seed, offset, limit;
  u32 quads, all_heads;             // words of dropout in a row of scores, in fours, and heads with such rows
};

// A place is the part of the problem that a block computes.
struct place { u32 batch, head, row0; bool none; };

INLINE place place_of(const problem &a, u32 heads, bool last, u32 slices) {
  place w;
  u32 group = (blockIdx.y * gridDim.x + blockIdx.x) / slices, stack = a.batches * heads, block = group / stack;
  w.none = block >= a.blocks;
  w.row0 = (last ? a.blocks - 1 - block : block) * ROWS;
  w.batch = group % stack / heads;
  w.head = group % heads;
  return w;
}

INLINE rows head_of(const matrix &m, u32 batch, u32 head) {
  rows r;
  r.at = m.at + batch * m.batch + head * m.head;
  r.row = m.row;
  return r;
}

// Numbers

INLINE u32 pack(float low, float high) {
  u32 w;
#if BF16
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(w) : "f"(high), "f"(low));
#else
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(w) : "f"(high), "f"(low));
#endif
  return w;
}

INLINE float unpack(u16 h) {
  float x;
#if BF16
  x = __uint_as_float((u32)h << 16);
#else
  asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(h));
#endif
  return x;
}

INLINE float exp2_(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// weight_of returns the exponential of a score, less that of its row. factor is 1 if scores are scaled.
INLINE float weight_of(float score, float factor, float of_row) {
  if (SCALED) return exp2_((score - of_row) * LOG2E);
  return exp2_(fmaf(score, factor, -of_row));
}

// weights rounds two neighbouring tiles of weights to a first factor.
INLINE void weights(u32 (&a)[4], const float (&x)[4], const float (&y)[4]) {
  a[0] = pack(x[0], x[1]);
  a[1] = pack(x[2], x[3]);
  a[2] = pack(y[0], y[1]);
  a[3] = pack(y[2], y[3]);
}
