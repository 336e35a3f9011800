// Kernels for bfloat16 by AMX, which has the squares of dots_bf16.h as tile registers. Part of variants.c, after those.

#define TARGET __attribute__((target("arch=x86-64-v4,amx-tile,amx-bf16")))

// Loads and stores the tiles of C.
#define EACH_TILE(f, ...) \
  f(0, c, ##__VA_ARGS__); \
  if (b_squares > 1) f(1, c + SQUARE, ##__VA_ARGS__); \
  if (a_squares > 1) f(2, c + SQUARE * c_row, ##__VA_ARGS__); \
  if (a_squares > 1 && b_squares > 1) f(3, c + SQUARE * c_row + SQUARE, ##__VA_ARGS__)
#define ZERO(tile, c) _tile_zero(tile)

TARGET static inline __attribute__((always_inline)) void multiply_squares(const int a_squares, const int b_squares,
                                                                          int64_t rows, int64_t k, const char *a,
                                                                          const char *b, float *out, int64_t out_row,
                                                                          int add) {
  const int64_t square = SQUARE * 64;
  // Where C has no row for each of the tiles, a copy has.
  _Alignas(64) float copy[2 * SQUARE][2 * SQUARE];
  bool whole = rows == a_squares * SQUARE;
  float *c = whole ? out : copy[0];
  int64_t c_row = whole ? out_row : 2 * SQUARE, bytes = b_squares * SQUARE * (int64_t)sizeof(float);
  for (int64_t i = 0; !whole && add && i < rows; i++) memcpy(copy[i], out + i * out_row, (size_t)bytes);
  if (add) {
    EACH_TILE(_tile_loadd, c_row * 4);
  } else {
    EACH_TILE(ZERO);
  }
#pragma GCC unroll 1
  for (; k > 0; k -= SQUARE, a += a_squares * square, b += b_squares * square) {
    _tile_loadd(4, a, 64);
    _tile_loadd(6, b, b_squares * 64);
    _tile_dpbf16ps(0, 4, 6);
    if (b_squares > 1) {
      _tile_loadd(7, b + 64, b_squares * 64);
      _tile_dpbf16ps(1, 4, 7);
    }
    if (a_squares > 1) {
      _tile_loadd(5, a + square, 64);
      _tile_dpbf16ps(2, 5, 6);
      if (b_squares > 1) _tile_dpbf16ps(3, 5, 7);
    }
  }
  EACH_TILE(_tile_stored, c_row * 4);
  for (int64_t i = 0; !whole && i < rows; i++) memcpy(out + i * out_row, copy[i], (size_t)bytes);
}

TARGET static void begin_squares(void) {
  static const struct {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
  } config = {1, 0, {0}, {64, 64, 64, 64, 64, 64, 64, 64}, {16, 16, 16, 16, 16, 16, 16, 16}};
  _tile_loadconfig(&config);
}

// Threads without tiles cost the system less to switch.
TARGET static void end_squares(void) { _tile_release(); }

TARGET static void micro_squares(int64_t rows, int64_t vectors, int64_t k, const void *a, const void *b, void *out,
                                 int64_t out_row, int add) {
  if (rows > SQUARE && vectors > 1) multiply_squares(2, 2, rows, k, a, b, out, out_row, add);
  else if (rows > SQUARE) multiply_squares(2, 1, rows, k, a, b, out, out_row, add);
  else if (vectors > 1) multiply_squares(1, 2, rows, k, a, b, out, out_row, add);
  else multiply_squares(1, 1, rows, k, a, b, out, out_row, add);
}

static const gemm_kernels kernels_amx = {
    .size = 4, .lanes = SQUARE, .mr = 2 * SQUARE, .nv = 2, .pair = 2, .unit = SQUARE, .a_lanes = SQUARE,
    .depth_bytes = 512, .pairs = micro_squares, .begin = begin_squares, .end = end_squares,
    .pack = pack_pairs, .pack_a = pack_squares, .epilogue = epilogue_f32_avx512,
};

#undef TARGET
#undef EACH_TILE
#undef ZERO
