// Kernels for bfloat16 by AMX. A tile register is a square of 16 lines and 16 pairs of elements along K; products of
// pairs are summed in float32. Subnormal numbers count as zero. Part of variants.c, after the kernels for float32 and
// AVX-512.
//
// Panels are made of such squares, with zeros after the last line and the last element of K.

#define SQUARE PLAITK_GEMM_SQUARE
#define LOCAL __attribute__((target("arch=x86-64-v4"))) static inline __attribute__((always_inline))

// Loads up to 16 lines that are contiguous along K: a row of 16 pairs for each.
LOCAL void load_lines(__m512i *square, const uint16_t *src, int64_t lines, int64_t line_step, int64_t elements) {
  __mmask32 some = elements < 2 * SQUARE ? (1u << elements) - 1 : ~0u;
#pragma GCC unroll 16
  for (int i = 0; i < SQUARE; i++) {
    square[i] = i < lines ? _mm512_maskz_loadu_epi16(some, src + i * line_step) : _mm512_setzero_si512();
  }
}

// Loads up to 16 adjacent lines: a row of 16 lines for each pair.
LOCAL void load_steps(__m512i *square, const uint16_t *src, int64_t lines, int64_t elements, int64_t depth_step) {
  __mmask16 some = (__mmask16)((1u << lines) - 1);
#pragma GCC unroll 16
  for (int p = 0; p < SQUARE; p++) {
    const uint16_t *row = src + 2 * p * depth_step;
    __m256i first = _mm256_setzero_si256(), second = first;
    if (2 * p < elements) first = _mm256_maskz_loadu_epi16(some, row);
    if (2 * p + 1 < elements) second = _mm256_maskz_loadu_epi16(some, row + depth_step);
    square[p] = _mm512_or_si512(_mm512_cvtepu16_epi32(first), _mm512_slli_epi32(_mm512_cvtepu16_epi32(second), 16));
  }
}

LOCAL void transpose_square(__m512i *square) {
  vec_f32_avx512 r[SQUARE];
  memcpy(r, square, sizeof r);
  transpose_f32_avx512(r);
  memcpy(square, r, sizeof r);
}

// Loads a square with any strides: a row for each pair if by_steps, else one for each line.
LOCAL void load_square(__m512i *square, const uint16_t *src, int64_t lines, int64_t line_step, int64_t elements,
                       int64_t depth_step, bool by_steps) {
  if (line_step == 1) {
    load_steps(square, src, lines, elements, depth_step);
  } else if (depth_step == 1) {
    load_lines(square, src, lines, line_step, elements);
  } else {
    uint16_t copy[SQUARE][2 * SQUARE];
    for (int64_t i = 0; i < lines; i++) {
      for (int64_t p = 0; p < elements; p++) copy[i][p] = src[i * line_step + p * depth_step];
    }
    load_lines(square, copy[0], lines, 2 * SQUARE, elements);
  }
  if (by_steps != (line_step == 1)) transpose_square(square);
}

// Packs lines of `depth` elements into the order of B: dst[p * panel + i] is pair p of line i.
__attribute__((target("arch=x86-64-v4"))) static void pack_pairs(void *dst, int64_t panel, const void *src, int dtype,
                                                                 int64_t width, int64_t line_step, int64_t depth,
                                                                 int64_t depth_step) {
  (void)dtype;
  for (int64_t p = 0; 2 * p < depth; p += SQUARE) {
    for (int64_t i = 0; i < panel; i += SQUARE) {
      __m512i square[SQUARE];
      load_square(square, (const uint16_t *)src + i * line_step + 2 * p * depth_step,
                  max64(0, min64(SQUARE, width - i)), line_step, min64(2 * SQUARE, depth - 2 * p), depth_step, true);
#pragma GCC unroll 16
      for (int q = 0; q < SQUARE; q++) _mm512_storeu_epi32((int32_t *)dst + (p + q) * panel + i, square[q]);
    }
  }
}

// Packs lines of `depth` elements into the order of A: squares whose rows are lines, those of the first 16 pairs first.
__attribute__((target("arch=x86-64-v4"))) static void pack_squares(void *dst, int64_t panel, const void *src, int dtype,
                                                                   int64_t width, int64_t line_step, int64_t depth,
                                                                   int64_t depth_step) {
  (void)dtype;
  __m512i *to = dst;
  for (int64_t p = 0; p < depth; p += 2 * SQUARE) {
    for (int64_t i = 0; i < panel; i += SQUARE, to += SQUARE) {
      load_square(to, (const uint16_t *)src + i * line_step + p * depth_step, max64(0, min64(SQUARE, width - i)),
                  line_step, min64(2 * SQUARE, depth - p), depth_step, false);
    }
  }
}

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
#undef LOCAL
#undef EACH_TILE
#undef ZERO
