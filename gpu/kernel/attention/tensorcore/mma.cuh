// Products by mma.sync, which GPUs have from compute capability 8.0 on. Rows in shared memory are padded with zeros to a multiple of 16
// numbers, plus 16 bytes, so that the eight rows that ldmatrix reads at a time lie in different banks.

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

constexpr bool ASYNC = false;
constexpr int ROWS_TOGETHER = ROWS_OF_WARP; // rows whose products are started together

// padded_to returns a width rounded up to whole fragments; pitch returns the bytes of a row in shared memory.
constexpr int padded_to(int width) { return (width + 15) / 16 * 16; }
constexpr int pitch(int padded) { return 2 * padded + 16; }

// tile_bytes returns the size of a tile. chunk_at returns where eight numbers of a row lie in it.
template <int COUNT, int PADDED> constexpr int tile_bytes() { return COUNT * pitch(PADDED); }
template <int COUNT, int PADDED> INLINE u32 chunk_at(u32 row, u32 chunk) { return row * pitch(PADDED) + chunk * 16; }

// ahead and across return the address of a row's tile for a lane: ldmatrix reads four matrices of eight rows. Rows of a first factor, and
// rows of a second factor that are multiplied with weights, come in the same order; a second factor whose rows are columns of the result
// has the other.
INLINE u32 ahead(u32 tile, int bytes) { u32 l = threadIdx.x % 32; return tile + l % 16 * bytes + l / 16 * 16; }
INLINE u32 across(u32 tile, int bytes) { u32 l = threadIdx.x % 32; return tile + (l / 16 * 8 + l % 8) * bytes + l / 8 % 2 * 16; }

// A left is the rows of a warp as first factor of a product: in registers if HELD, otherwise in shared memory.
template <int PADDED> struct left {
  u32 at;
  u32 held[HELD ? TILES : 1][HELD ? PADDED / 16 : 1][4];

  __device__ __forceinline__ void open(u32 tile) {
    at = ahead(tile + threadIdx.x / 32 * ROWS_OF_WARP * pitch(PADDED), pitch(PADDED));
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

// outer sets s to the products of the rows of a warp with 8 N rows of a tile of COUNT rows, from row on.
template <int COUNT, int N, int PADDED> INLINE void outer(float (&s)[TILES][N][4], const left<PADDED> &x, u32 tile, int row) {
  const u32 y = across(tile + row * pitch(PADDED), pitch(PADDED));
#pragma unroll
  for (int m = 0; m < TILES; m++)
#pragma unroll
    for (int n = 0; n < N; n++)
#pragma unroll
      for (int i = 0; i < 4; i++) s[m][n][i] = 0.0f;
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

// add adds to d the product of a block of weights, which has 16 columns, with 16 rows of a tile of COUNT rows, from row on. The first column
// of d is the tile's given column. Those from the tile's last on are not computed.
template <int COUNT, int PADDED, int N> INLINE void add(float (&d)[TILES][N][4], const u32 (&a)[TILES][4], u32 tile, int row, int column) {
  const u32 y = ahead(tile + row * pitch(PADDED) + column * 2, pitch(PADDED));
#pragma unroll
  for (int n = 0; n < N; n += 2) {
    if (N * 8 != PADDED && column + n * 8 >= PADDED) break;
    u32 b[4];
    ldmatrix_trans(b, y + n * 16);
#pragma unroll
    for (int m = 0; m < TILES; m++) {
      mma(d[m][n], a[m], b[0], b[1]);
      mma(d[m][n + 1], a[m], b[2], b[3]);
    }
  }
}

// Products are complete as soon as they have been started.
INLINE void begin() {}
INLINE void commit() {}
template <int LEFT> INLINE void finish() {}
template <class T> INLINE void settle(T &) {}
