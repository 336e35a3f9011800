// weight_sums computes a tile of the gradient of the weights: rows are output channels, columns are rows of patches. The sum runs over a
// chunk of the positions of all images. Chunks are added up afterwards, in order.
constexpr int DEPTH = 64, COLUMNS = 64;
constexpr int PITCH = DEPTH * 2 + 16; // rows that ldmatrix reads at a time lie in different banks
constexpr int A_BYTES = ROWS * PITCH, B_BYTES = COLUMNS * PITCH;
constexpr int TALL = ROWS / 4 / 16, WIDE = COLUMNS / 2 / 8; // the warps are four by two
constexpr int TALL_RUN = ROWS / WARPS;                       // rows of the first factor that a thread reads

INLINE void weight_sums(const problem &p) {
  const u32 block = blockIdx.y * gridDim.x + blockIdx.x, tile = block % p.row_tiles, rest = block / p.row_tiles;
  const u32 column0 = rest % p.column_tiles * COLUMNS, part = rest / p.column_tiles / p.groups, group = rest / p.column_tiles % p.groups;
  const u32 row0 = tile * ROWS, all = p.images * p.of_image.by, begin = part * p.chunk, end = min(all, begin + p.chunk);
  if (begin >= all) return;
  const u32 thread = threadIdx.x, lane = thread % 32, warp = thread / 32;
  char *const a_tiles = shared_memory(), *const b_tiles = a_tiles + 2 * A_BYTES;
  const u16 *const gradient = p.a + group * p.rows * p.y_plane, *const x = p.x + group * p.channels * p.plane;

  u32 next_a[TALL_RUN], next_b[RUN];
  // read starts to read the tiles of positions from k on. What it cannot copy at once, it leaves in registers for store.
  const auto read = [&](u32 k, char *to_a, char *to_b) {
    if constexpr (ALIGNED_A || ALIGNED_B) {
      const u32 chunk = thread % (DEPTH / 8), position = k + chunk * 8, n = quotient(position, p.of_image), place = position - n * p.of_image.by;
      if constexpr (ALIGNED_A) {
#pragma unroll
        for (int j = 0; j < ROWS / (THREADS / (DEPTH / 8)); j++) {
          const u32 row = thread / (DEPTH / 8) + j * (THREADS / (DEPTH / 8));
          const bool in = position < end && row0 + row < p.rows;
          copy16(to_a + row * PITCH + chunk * 16, gradient + (in ? (u64)n * p.y_image + (u64)(row0 + row) * p.y_plane + place : 0), in);
        }
      }
      if constexpr (ALIGNED_B) {
#pragma unroll
        for (int j = 0; j < COLUMNS / (THREADS / (DEPTH / 8)); j++) {
          const u32 row = thread / (DEPTH / 8) + j * (THREADS / (DEPTH / 8));
          const bool in = position < end && column0 + row < p.channels;
          copy16(to_b + row * PITCH + chunk * 16, x + (in ? (u64)n * p.x_image + (u64)(column0 + row) * p.plane + place : 0), in);
        }
      }
    }
    if constexpr (!ALIGNED_A || !ALIGNED_B) {
      const u32 position = k + lane * 2;
      if constexpr (!ALIGNED_A) {
        const u32 n0 = quotient(position, p.of_image), n1 = quotient(position + 1, p.of_image);
        const u16 *const l = gradient + n0 * p.y_image + (position - n0 * p.of_image.by), *const r = gradient + n1 * p.y_image + (position + 1 - n1 * p.of_image.by);
#pragma unroll
        for (int i = 0; i < TALL_RUN; i++) {
          const u32 row = row0 + warp * TALL_RUN + i;
          if constexpr (PAIRED_A) {
            next_a[i] = row < p.rows && position < end ? __ldg((const u32 *)(l + row * p.y_plane)) : 0;
            continue;
          }
          u32 low = 0, high = 0;
          if (row < p.rows && position < end) low = __ldg(l + row * p.y_plane);
          if (row < p.rows && position + 1 < end) high = __ldg(r + row * p.y_plane);
          next_a[i] = low | high << 16;
        }
      }
      if constexpr (!ALIGNED_B) gather(next_b, p, x, column_of(p, position, end), column_of(p, position + 1, end), column0 + warp * RUN);
    }
  };
  const auto store = [&](char *to_a, char *to_b) {
    if constexpr (!ALIGNED_A) put(to_a + warp * TALL_RUN * PITCH + lane * 4, PITCH, next_a);
    if constexpr (!ALIGNED_B) put(to_b + warp * RUN * PITCH + lane * 4, PITCH, next_b);
    copied();
    __syncthreads();
  };

  read(begin, a_tiles, b_tiles);
  store(a_tiles, b_tiles);
  float sum[TALL][WIDE][4] = {};
  const char *const a = a_tiles + warp / 2 * (ROWS / 4) * PITCH, *const b = b_tiles + warp % 2 * (COLUMNS / 2) * PITCH;
  u32 turn = 0;
  for (u32 k = begin; k < end; k += DEPTH, turn ^= 1) {
    char *const to_a = a_tiles + (turn ^ 1) * A_BYTES, *const to_b = b_tiles + (turn ^ 1) * B_BYTES;
    const bool more = k + DEPTH < end;
    if (more) read(k + DEPTH, to_a, to_b);
    multiply<DEPTH, TALL, WIDE, PITCH, PITCH, false>(sum, a + turn * A_BYTES, b + turn * B_BYTES);
    if (more) store(to_a, to_b);
  }

  const u32 row = row0 + warp / 2 * (ROWS / 4) + lane / 4, column = column0 + warp % 2 * (COLUMNS / 2) + lane % 4 * 2;
  float *const y = (float *)p.y + (u64)(part * p.groups + group) * p.rows * p.columns + column;
#pragma unroll
  for (int m = 0; m < TALL; m++)
#pragma unroll
    for (int n = 0; n < WIDE; n++)
#pragma unroll
      for (int i = 0; i < 2; i++)
        if (row + m * 16 + i * 8 < p.rows) *(float2 *)(y + (u64)(row + m * 16 + i * 8) * p.columns + n * 8) = {sum[m][n][2 * i], sum[m][n][2 * i + 1]};
}
