// Parts that all programs share: fragments of tensor cores, tiles in shared memory, masks and dropout.
//
// A tile in shared memory has rows of 16-bit numbers. Rows are padded to a multiple of 16 numbers with zeros, plus 16 bytes, so that the
// eight rows that ldmatrix reads at a time lie in different banks. Fragments are those of mma.m16n8k16: lane 4 g + t of a warp has columns
// 2 t and 2 t + 1 of rows g and g + 8.

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
  u32 quads;                        // words of dropout in a row of scores, in fours
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

// Tensor cores

INLINE void mma(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1) {
#if BF16
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
#else
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
#endif
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

INLINE void ldmatrix(u32 (&r)[4], u32 at) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];" : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(at) : "memory");
}

INLINE void ldmatrix_trans(u32 (&r)[4], u32 at) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];" : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(at) : "memory");
}

// padded_to returns a width rounded up to whole fragments; pitch returns the bytes of a row in shared memory.
constexpr int padded_to(int width) { return (width + 15) / 16 * 16; }
constexpr int pitch(int padded) { return 2 * padded + 16; }

constexpr int DP = padded_to(DIM), VP = padded_to(VALUE);

// The three orders in which lanes address the matrices that ldmatrix reads. Rows of the first factor (ahead), and rows of a second factor
// whose columns are the result's columns (along), come in the same order; a second factor whose rows are the result's columns has the other.
INLINE u32 lane_ahead(int bytes) { u32 l = threadIdx.x % 32; return (l % 16) * bytes + l / 16 * 16; }
INLINE u32 lane_across(int bytes) { u32 l = threadIdx.x % 32; return (l / 16 * 8 + l % 8) * bytes + l / 8 % 2 * 16; }

// A left is the rows of a warp as first factor of a product: in registers if HELD, otherwise in shared memory.
template <int PADDED, bool HELD> struct left {
  u32 at;
  u32 held[HELD ? TILES : 1][HELD ? PADDED / 16 : 1][4];

  __device__ __forceinline__ void open(u32 tile) {
    at = tile + threadIdx.x / 32 * ROWS_OF_WARP * pitch(PADDED) + lane_ahead(pitch(PADDED));
    if constexpr (HELD) {
#pragma unroll
      for (int m = 0; m < TILES; m++)
#pragma unroll
        for (int k = 0; k < PADDED / 16; k++) ldmatrix(held[m][k], at + m * 16 * pitch(PADDED) + k * 32);
    }
  }

  __device__ __forceinline__ void get(u32 (&a)[4], int m, int k) const {
    if constexpr (HELD) {
#pragma unroll
      for (int i = 0; i < 4; i++) a[i] = held[m][k][i];
    } else {
      ldmatrix(a, at + m * 16 * pitch(PADDED) + k * 32);
    }
  }
};

// outer adds to s the products of the rows of a warp with 8 N rows of a tile. y is the tile's address with lane_across.
template <int N, int PADDED, bool HELD> INLINE void outer(float (&s)[TILES][N][4], const left<PADDED, HELD> &x, u32 y) {
#pragma unroll
  for (int k = 0; k < PADDED / 16; k++) {
    u32 a[TILES][4];
#pragma unroll
    for (int m = 0; m < TILES; m++) x.get(a[m], m, k);
#pragma unroll
    for (int n = 0; n < N; n += 2) {
      u32 b[4];
      ldmatrix(b, y + n * 8 * pitch(PADDED) + k * 32);
#pragma unroll
      for (int m = 0; m < TILES; m++) {
        mma(s[m][n], a[m], b[0], b[1]);
        mma(s[m][n + 1], a[m], b[2], b[3]);
      }
    }
  }
}

// add adds to d the product of a block of weights, which has 16 columns, with 16 rows of a tile. y is the tile's address with lane_ahead.
// Columns from bound on are not computed.
template <int N, bool BOUNDED> INLINE void add(float (&d)[TILES][N][4], const u32 (&a)[TILES][4], u32 y, int bound) {
#pragma unroll
  for (int n = 0; n < N; n += 2) {
    if (BOUNDED && n * 8 >= bound) break;
    u32 b[4];
    ldmatrix_trans(b, y + n * 16);
#pragma unroll
    for (int m = 0; m < TILES; m++) {
      mma(d[m][n], a[m], b[0], b[1]);
      mma(d[m][n + 1], a[m], b[2], b[3]);
    }
  }
}

// weights rounds two neighbouring tiles of weights to a first factor.
INLINE void weights(u32 (&a)[4], const float (&x)[4], const float (&y)[4]) {
  a[0] = pack(x[0], x[1]);
  a[1] = pack(x[2], x[3]);
  a[2] = pack(y[0], y[1]);
  a[3] = pack(y[2], y[3]);
}

// Tiles

INLINE u32 shared_memory() {
  extern __shared__ uint4 tiles[];
  return (u32)__cvta_generic_to_shared(tiles);
}

INLINE void wait_all() { asm volatile("cp.async.wait_all;" ::: "memory"); }

// load starts to copy rows of a matrix to a tile, from row first on. Numbers beyond the matrix are zero. With VECTORS, all rows are
// aligned to 16 bytes, and so is their width.
template <int COUNT, int WIDTH, bool VECTORS> INLINE void load(u32 tile, const rows &m, u32 first, u32 end) {
  constexpr int PADDED = padded_to(WIDTH);
  if constexpr (VECTORS) {
    constexpr int CHUNKS = PADDED / 8, ALL = COUNT * CHUNKS;
#pragma unroll
    for (int j = 0; j < (ALL + THREADS - 1) / THREADS; j++) {
      int i = j * THREADS + threadIdx.x;
      if (ALL % THREADS != 0 && i >= ALL) break;
      u32 row = i / CHUNKS, chunk = i % CHUNKS;
      if constexpr (THREADS % CHUNKS == 0) {
        row = threadIdx.x / CHUNKS + j * (THREADS / CHUNKS);
        chunk = threadIdx.x % CHUNKS;
      }
      bool in = first + row < end && (WIDTH == PADDED || chunk * 8 < WIDTH);
      const u16 *from = m.at + (in ? (first + row) * m.row + chunk * 8 : 0);
      asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(tile + row * pitch(PADDED) + chunk * 16), "l"(from), "r"(in ? 16 : 0) : "memory");
    }
  } else {
    for (int i = threadIdx.x; i < COUNT * PADDED / 2; i += THREADS) {
      u32 row = i / (PADDED / 2), column = i % (PADDED / 2) * 2, w = 0;
      const u16 *from = m.at + (first + row) * m.row + column;
      if (first + row < end && column < WIDTH) w = from[0];
      if (first + row < end && column + 1 < WIDTH) w |= (u32)from[1] << 16;
      asm volatile("st.shared.u32 [%0], %1;" ::"r"(tile + row * pitch(PADDED) + column * 2), "r"(w) : "memory");
    }
  }
}

// store writes 8 N columns of a warp's rows, from column on, by way of the tile. factor is that of rows g and g + 8 of each fragment.
template <int N, int WIDTH, bool VECTORS>
INLINE void store(const rows &m, u32 first, u32 end, u32 column, float (&d)[TILES][N][4], const float (&factor)[TILES][2], u32 tile) {
  const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  constexpr int BYTES = pitch(8 * N);
  tile += warp * ROWS_OF_WARP * BYTES;
  __syncwarp();
#pragma unroll
  for (int t = 0; t < TILES; t++)
#pragma unroll
    for (int n = 0; n < N; n++)
#pragma unroll
      for (int i = 0; i < 2; i++) {
        u32 w = pack(d[t][n][2 * i] * factor[t][i], d[t][n][2 * i + 1] * factor[t][i]);
        asm volatile("st.shared.u32 [%0], %1;" ::"r"(tile + (t * 16 + i * 8 + lane / 4) * BYTES + n * 16 + lane % 4 * 4), "r"(w) : "memory");
      }
  __syncwarp();
  first += warp * ROWS_OF_WARP;
  for (int i = lane; i < ROWS_OF_WARP * N; i += 32) {
    u32 row = i / N, chunk = i % N, at = column + chunk * 8;
    uint4 w;
    asm volatile("ld.shared.v4.u32 {%0,%1,%2,%3}, [%4];" : "=r"(w.x), "=r"(w.y), "=r"(w.z), "=r"(w.w) : "r"(tile + row * BYTES + chunk * 16) : "memory");
    if (first + row >= end) continue;
    u16 *to = m.at + (first + row) * m.row + at;
    if constexpr (VECTORS) {
      if (at < WIDTH) *(uint4 *)to = w;
    } else {
      const u32 words[4] = {w.x, w.y, w.z, w.w};
#pragma unroll
      for (int j = 0; j < 8; j++)
        if (at + j < WIDTH) to[j] = (u16)(words[j / 2] >> (j % 2 * 16));
    }
  }
}

// Masks and dropout

// masked scales a score and adds the mask.
INLINE float masked(const problem &a, float v, u64 mask_at, u32 query, u32 key) {
  if (SCALED) v *= a.scale;
  if (MASK != 0 && query < a.queries && key < a.keys) {
    u64 at = mask_at + query * a.mask_query + key * a.mask_key;
    if (MASK == 1) v = ((const unsigned char *)a.mask)[at] ? v : -INFINITE;
    if (MASK == 2) v += ((const float *)a.mask)[at];
    if (MASK == 3) v += unpack(((const u16 *)a.mask)[at]);
  }
  return v;
}

// adjust applies scale and mask to a fragment of scores, whose first row and column are those of the lane. With edge, it hides keys beyond
// the last, and after the query.
template <bool ROWS_ARE_KEYS> INLINE void adjust(const problem &a, float (&s)[4], u64 mask_at, u32 row, u32 column, bool edge) {
  if (!SCALED && !edge) return;
#pragma unroll
  for (int i = 0; i < 4; i++) {
    u32 r = row + i / 2 * 8, c = column + i % 2, query = ROWS_ARE_KEYS ? c : r, key = ROWS_ARE_KEYS ? r : c;
    float v = masked(a, s[i], mask_at, query, key);
    s[i] = edge && (key >= a.keys || (CAUSAL && key > query)) ? -INFINITE : v;
  }
}

INLINE void philox(u32 (&w)[4], u64 seed, u64 counter) {
  u32 k0 = (u32)seed, k1 = (u32)(seed >> 32);
  w[0] = (u32)counter, w[1] = (u32)(counter >> 32), w[2] = 0, w[3] = 0;
#pragma unroll
  for (int i = 0; i < 10; i++) {
    u64 x = (u64)w[0] * 0xD2511F53u, y = (u64)w[2] * 0xCD9E8D57u;
    w[0] = (u32)(y >> 32) ^ w[1] ^ k0, w[1] = (u32)y;
    w[2] = (u32)(x >> 32) ^ w[3] ^ k1, w[3] = (u32)x;
    k0 += 0x9E3779B9u, k1 += 0xBB67AE85u;
  }
}

// kept tells which weights of two neighbouring fragments dropout keeps: bit 4 n + i is element i of fragment n. Rows are queries; row is
// that of the lane among all rows of scores, and key0 the first key. Each lane draws the words of four keys and gives two to its neighbour.
INLINE u32 kept(const problem &a, u64 row, u32 key0) {
  const u32 t = threadIdx.x % 4, odd = t & 1;
  u32 bits = 0;
#pragma unroll
  for (int i = 0; i < 2; i++) {
    u32 w[4];
    philox(w, a.seed, a.offset + (row + i * 8) * a.quads + (key0 + odd * 8) / 4 + t / 2);
    u32 x = __shfl_xor_sync(~0u, odd ? w[0] : w[2], 1), y = __shfl_xor_sync(~0u, odd ? w[1] : w[3], 1);
    u32 mine = (u32)((odd ? w[2] : w[0]) < a.limit) | (u32)((odd ? w[3] : w[1]) < a.limit) << 1;
    u32 other = (u32)(x < a.limit) | (u32)(y < a.limit) << 1;
    bits |= (odd ? other | mine << 4 : mine | other << 4) << (2 * i);
  }
  return bits;
}

// kept_across is kept for one fragment whose rows are keys. row0 is the row of scores of the fragment's first query. Each lane draws the
// words of four keys and a query; four lanes then transpose them.
INLINE u32 kept_across(const problem &a, u64 row0, u32 key0) {
  const u32 t = threadIdx.x % 4, g = threadIdx.x % 32 / 4, i = g % 4;
  u32 w[4];
  philox(w, a.seed, a.offset + (row0 + 2 * t + i % 2) * a.quads + key0 / 4 + g / 4 + i / 2 * 2);
#pragma unroll
  for (int step = 1; step < 4; step *= 2)
#pragma unroll
    for (int j = 0; j < 4; j++)
      if ((j & step) == 0) {
        bool odd = i & step;
        u32 got = __shfl_xor_sync(~0u, odd ? w[j] : w[j | step], 4 * step);
        if (odd) w[j] = got; else w[j | step] = got;
      }
  u32 bits = 0;
#pragma unroll
  for (int j = 0; j < 4; j++) bits |= (u32)(w[j] < a.limit) << j;
  return bits;
}
