// Products by wgmma, which GPUs of compute capability 9.0 have. A warpgroup, which is four warps, multiplies 64 rows with a tile in shared
// memory that is read once for all of them. Rows are padded with zeros to a multiple of 64 numbers. A tile consists of panels of 64 columns,
// whose rows have 128 bytes, eight chunks; row r has chunk c at c ^ r % 8, which is the order that the hardware calls 128-byte swizzle.

constexpr bool ASYNC = true;
constexpr int ROWS_TOGETHER = 64; // rows whose products are started together
static_assert(TILES == 1, "a warp has 16 rows");

constexpr int padded_to(int width) { return (width + 63) / 64 * 64; }

// tile_bytes returns the size of a tile. chunk_at returns where eight numbers of a row lie in it.
template <int COUNT, int PADDED> constexpr int tile_bytes() { return COUNT * PADDED * 2; }
template <int COUNT, int PADDED> INLINE u32 chunk_at(u32 row, u32 chunk) { return (chunk / 8 * COUNT + row) * 128 + (chunk % 8 ^ row % 8) * 16; }

// described returns the descriptor of a matrix in shared memory: its address, the distance of panels, and that of groups of eight rows.
INLINE u64 described(u32 at, u32 panel) {
  return (u64)(at >> 4) | (u64)(panel >> 4) << 16 | (u64)(1024 >> 4) << 32 | 1ull << 62;
}

#if BF16
#define WGMMA "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 "
#else
#define WGMMA "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 "
#endif
#define FOUR(d, n) "+f"(d[n][0]), "+f"(d[n][1]), "+f"(d[n][2]), "+f"(d[n][3])
#define RESULT(d, n) FOUR(d, n), FOUR(d, n + 1), FOUR(d, n + 2), FOUR(d, n + 3), FOUR(d, n + 4), FOUR(d, n + 5), FOUR(d, n + 6), FOUR(d, n + 7)
#define REGISTERS \
  "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31}, "

// wgmma multiplies 64 rows with 64 rows or columns of a second factor; the result begins at fragment P of d. With a first factor in shared
// memory, the rows of the second are columns of the result, which is added to d, or with FIRST replaces it. With one in registers, which are
// weights, the rows of the second are those that the weights multiply, and the result is added.
template <int P, int N> INLINE void wgmma(float (&d)[N][4], const u32 (&a)[4], u64 b) {
  asm volatile(WGMMA REGISTERS "{%32,%33,%34,%35}, %36, 1, 1, 1, 1;"
               : RESULT(d, P)
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}
template <int P, bool FIRST, int N> INLINE void wgmma(float (&d)[N][4], u64 a, u64 b) {
  asm volatile("{ .reg .pred more; setp.ne.b32 more, %34, 0; " WGMMA REGISTERS "%32, %33, more, 1, 1, 0, 0; }"
               : RESULT(d, P)
               : "l"(a), "l"(b), "n"(FIRST ? 0 : 1));
}

// A left is the rows of a warpgroup as first factor of a product. They stay in shared memory: NVRTC 13.0 loses rows that stay in registers
// from one iteration of a loop to the next.
template <int PADDED> struct left {
  u32 at;
  __device__ __forceinline__ void open(u32 tile) { at = tile + threadIdx.x / 128 * 64 * 128; }
};

// outer_panel is outer for the columns of s from 64 P on.
template <int COUNT, int P, int K, int N, int PADDED> INLINE void outer_panel(float (&s)[N][4], const left<PADDED> &x, u32 tile, int row) {
  if constexpr (K < PADDED / 16) {
    const u64 b = described(tile + (K / 4 * COUNT + row + P * 64) * 128 + K % 4 * 32, 16);
    wgmma<8 * P, K == 0>(s, described(x.at + K / 4 * ROWS * 128 + K % 4 * 32, 16), b);
    outer_panel<COUNT, P, K + 1>(s, x, tile, row);
  } else if constexpr (8 * (P + 1) < N) {
    outer_panel<COUNT, P + 1, 0>(s, x, tile, row);
  }
}

// outer starts to set s to the products of the rows of a warpgroup with 8 N rows of a tile of COUNT rows, from row on. N is a multiple of 8.
template <int COUNT, int N, int PADDED> INLINE void outer(float (&s)[1][N][4], const left<PADDED> &x, u32 tile, int row) {
  outer_panel<COUNT, 0, 0>(s[0], x, tile, row);
}

template <int COUNT, int P, int N> INLINE void add_panel(float (&d)[N][4], const u32 (&a)[4], u32 tile, int row) {
  wgmma<8 * P>(d, a, described(tile + (P * COUNT + row) * 128, 16));
  if constexpr (8 * (P + 1) < N) add_panel<COUNT, P + 1>(d, a, tile, row);
}

// add starts to add to d the product of a block of weights, which has 16 columns, with 16 rows of a tile of COUNT rows, from row on. All
// columns of the tile are computed.
template <int COUNT, int PADDED, int N> INLINE void add(float (&d)[1][N][4], const u32 (&a)[1][4], u32 tile, int row, int) {
  if constexpr (N * 8 == PADDED) add_panel<COUNT, 0>(d[0], a[0], tile, row); // a gradient that is not wanted has fewer
}

// begin is called before products whose registers other instructions have written. commit ends a group of products, and finish waits until
// at most LEFT of the latest groups are not complete. The compiler does not know that products write their result later than they are started:
// settle keeps it from moving instructions that use the result before finish, or those that write an operand behind begin.
INLINE void begin() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
INLINE void commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int LEFT> INLINE void finish() { asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(LEFT) : "memory"); }
template <int N> INLINE void settle(float (&d)[1][N][4]) {
#pragma unroll
  for (int n = 0; n < N; n++) asm volatile("" : "+f"(d[0][n][0]), "+f"(d[0][n][1]), "+f"(d[0][n][2]), "+f"(d[0][n][3])::"memory");
}
template <int N> INLINE void settle(u32 (&a)[N][1][4]) {
#pragma unroll
  for (int n = 0; n < N; n++) asm volatile("" : "+r"(a[n][0][0]), "+r"(a[n][0][1]), "+r"(a[n][0][2]), "+r"(a[n][0][3])::"memory");
}
