// results computes a tile of the results of a convolution, or of the gradient of its input: rows are output channels, columns are positions.
// The weights are the first factor, padded with zeros to whole tiles along the patch. Both factors are in shared memory twice, so that the
// next tiles are read while these are multiplied.
constexpr int DEPTH = 32, COLUMNS = 128;
constexpr int A_PITCH = DEPTH * 2 + 16, B_PITCH = COLUMNS * 2 + 16; // rows that ldmatrix reads at a time lie in different banks
constexpr int A_BYTES = ROWS * A_PITCH, B_BYTES = DEPTH * B_PITCH;
constexpr int TALL = ROWS / 2 / 16, WIDE = COLUMNS / 4 / 8; // the warps are two by four

INLINE void results(const problem &p) {
  const u32 block = blockIdx.y * gridDim.x + blockIdx.x, tile = block % p.row_tiles, rest = block / p.row_tiles;
  const u32 group = rest / p.column_tiles, row0 = tile * ROWS, column0 = rest % p.column_tiles * COLUMNS;
  if (group >= p.groups) return;
  const u32 thread = threadIdx.x, lane = thread % 32, warp = thread / 32;
  char *const a_tiles = shared_memory(), *const b_tiles = a_tiles + 2 * A_BYTES;
  const u16 *const weights = p.a + (u64)group * p.rows * p.depth, *const x = p.x + group * p.channels * p.plane;
  const u32 pair = thread % (COLUMNS / 2), run = thread / (COLUMNS / 2) * RUN;
  const column left = column_of(p, column0 + 2 * pair, p.columns), right = column_of(p, column0 + 2 * pair + 1, p.columns);
  const auto load_weights = [&](u32 k, char *to) {
#pragma unroll
    for (int j = 0; j < ROWS * (DEPTH / 8) / THREADS; j++) {
      const u32 i = j * THREADS + thread, row = i / (DEPTH / 8), part = i % (DEPTH / 8);
      const bool in = row0 + row < p.rows;
      copy16(to + row * A_PITCH + part * 16, weights + (in ? (u64)(row0 + row) * p.depth + k + part * 8 : 0), in);
    }
  };

  u32 next[RUN];
  load_weights(0, a_tiles);
  gather(next, p, x, left, right, run);
  put(b_tiles + run * B_PITCH + pair * 4, B_PITCH, next);
  copied();
  __syncthreads();

  float sum[TALL][WIDE][4] = {};
  const char *const a = a_tiles + warp / 4 * (ROWS / 2) * A_PITCH, *const b = b_tiles + warp % 4 * (COLUMNS / 4) * 2;
  u32 turn = 0;
  for (u32 k = 0; k < p.depth; k += DEPTH, turn ^= 1) {
    const bool more = k + DEPTH < p.depth;
    if (more) {
      load_weights(k + DEPTH, a_tiles + (turn ^ 1) * A_BYTES);
      gather(next, p, x, left, right, k + DEPTH + run);
    }
    multiply<DEPTH, TALL, WIDE, A_PITCH, B_PITCH, true>(sum, a + turn * A_BYTES, b + turn * B_BYTES);
    if (more) put(b_tiles + (turn ^ 1) * B_BYTES + run * B_PITCH + pair * 4, B_PITCH, next);
    copied();
    __syncthreads();
  }

  // The results pass through shared memory, so that threads store neighbouring positions of a channel.
  char *const staged = a_tiles + (warp / 4 * (ROWS / 2) + lane / 4) * B_PITCH + (warp % 4 * (COLUMNS / 4) + lane % 4 * 2) * 2;
#pragma unroll
  for (int m = 0; m < TALL; m++)
#pragma unroll
    for (int n = 0; n < WIDE; n++)
#pragma unroll
      for (int i = 0; i < 2; i++) *(u32 *)(staged + (m * 16 + i * 8) * B_PITCH + n * 16) = pack(sum[m][n][2 * i], sum[m][n][2 * i + 1]);
  __syncthreads();
  const u32 at = thread % COLUMNS, position = column0 + at;
  if (position >= p.columns) return;
  const u32 n = quotient(position, p.of_image);
  u16 *const y = (u16 *)p.y + (u64)n * p.y_image + (u64)group * p.rows * p.y_plane + place_of(p, position - n * p.of_image.by);
#pragma unroll 8
  for (u32 row = thread / COLUMNS; row < ROWS; row += THREADS / COLUMNS)
    if (row0 + row < p.rows) y[(u64)(row0 + row) * p.y_plane] = *(const u16 *)(a_tiles + row * B_PITCH + at * 2);
}
