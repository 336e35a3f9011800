// Tiles

constexpr int DP = padded_to(DIM), VP = padded_to(VALUE);

INLINE u32 shared_memory() {
  extern __shared__ uint4 tiles[];
  u32 at = (u32)__cvta_generic_to_shared(tiles);
  return ASYNC ? (at + 1023) / 1024 * 1024 : at;
}

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
      asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(tile + chunk_at<COUNT, PADDED>(row, chunk)), "l"(from), "r"(in ? 16 : 0) : "memory");
    }
  } else {
    for (int i = threadIdx.x; i < COUNT * PADDED / 2; i += THREADS) {
      u32 row = i / (PADDED / 2), column = i % (PADDED / 2) * 2, w = 0;
      const u16 *from = m.at + (first + row) * m.row + column;
      if (first + row < end && column < WIDTH) w = from[0];
      if (first + row < end && column + 1 < WIDTH) w |= (u32)from[1] << 16;
      asm volatile("st.shared.u32 [%0], %1;" ::"r"(tile + chunk_at<COUNT, PADDED>(row, column / 8) + column % 8 * 2), "r"(w) : "memory");
    }
  }
}

// loaded waits until the tiles that all warps load are complete, and until all warps have read the others.
INLINE void loaded() {
  asm volatile("cp.async.wait_all;" ::: "memory");
  if (ASYNC) asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  __syncthreads();
}

// store writes 8 N columns of a warp's rows, from column on, by way of the tile. factor is that of rows g and g + 8 of each fragment.
template <int N, int WIDTH, bool VECTORS>
INLINE void store(const rows &m, u32 first, u32 end, u32 column, float (&d)[TILES][N][4], const float (&factor)[TILES][2], u32 tile) {
  const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  constexpr int BYTES = 16 * N + 16; // the padding spreads rows over banks
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
