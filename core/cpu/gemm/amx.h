// Kernels for bfloat16 by AMX. A tile register is a square of 16 lines and 16 pairs of elements along K; products of
// pairs are summed in float32. Subnormal numbers count as zero. Part of variants.c, after the kernels for float32 and
// AVX-512.
//
// Panels are made of such squares, with zeros after the last line and the last element of K.

#define SQUARE PLAITK_GEMM_SQUARE
#define VECTORS __attribute__((target("arch=x86-64-v4,avx512bf16")))
#define LOCAL VECTORS static inline __attribute__((always_inline))

// Loads up to 32 elements that are adjacent.
LOCAL __m512i load_elements(const char *src, bool rounds, int64_t elements) {
  __mmask32 some = elements < 2 * SQUARE ? (1u << elements) - 1 : ~0u;
  if (!rounds) return _mm512_maskz_loadu_epi16(some, src);
  __m512 first = _mm512_maskz_loadu_ps((__mmask16)some, src);
  return (__m512i)_mm512_cvtne2ps_pbh(_mm512_maskz_loadu_ps((__mmask16)(some >> SQUARE), src + 64), first);
}

// Loads up to 16 lines that are contiguous along K: a row of 16 pairs for each.
LOCAL void load_lines(__m512i *square, const char *src, bool rounds, int64_t lines, int64_t line_step,
                      int64_t elements) {
#pragma GCC unroll 16
  for (int i = 0; i < SQUARE; i++) {
    const char *line = src + i * line_step, *ahead = line + (rounds ? 2 : 1) * GEMM_PACK_AHEAD;
    __builtin_prefetch(ahead, 0, 2);
    if (rounds) __builtin_prefetch(ahead + 64, 0, 2);
    square[i] = i < lines ? load_elements(line, rounds, elements) : _mm512_setzero_si512();
  }
}

// Loads an element of up to 16 adjacent lines.
LOCAL __m512i load_step(const char *src, bool rounds, int64_t lines) {
  __mmask16 some = (__mmask16)((1u << lines) - 1);
  if (!rounds) return _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(some, src));
  return _mm512_cvtepu16_epi32((__m256i)_mm512_cvtneps_pbh(_mm512_maskz_loadu_ps(some, src)));
}

// Loads up to 16 adjacent lines: a row of 16 lines for each pair.
LOCAL void load_steps(__m512i *square, const char *src, bool rounds, int64_t lines, int64_t elements,
                      int64_t depth_step) {
#pragma GCC unroll 16
  for (int p = 0; p < SQUARE; p++) {
    const char *row = src + 2 * p * depth_step;
    __m512i first = _mm512_setzero_si512(), second = first;
    if (2 * p < elements) first = load_step(row, rounds, lines);
    if (2 * p + 1 < elements) second = load_step(row + depth_step, rounds, lines);
    square[p] = _mm512_or_si512(first, _mm512_slli_epi32(second, 16));
  }
}

LOCAL void transpose_square(__m512i *square) {
  vec_f32_avx512 r[SQUARE];
  memcpy(r, square, sizeof r);
  transpose_f32_avx512(r);
  memcpy(square, r, sizeof r);
}

// Loads a square with any strides, in bytes: a row for each pair if by_steps, else one for each line.
LOCAL void load_square(__m512i *square, const char *src, bool rounds, int64_t lines, int64_t line_step,
                       int64_t elements, int64_t depth_step, bool by_steps) {
  const int64_t size = rounds ? 4 : 2;
  if (line_step == size) {
    load_steps(square, src, rounds, lines, elements, depth_step);
  } else if (depth_step == size) {
    load_lines(square, src, rounds, lines, line_step, elements);
  } else {
    char copy[SQUARE][2 * SQUARE * 4];
    for (int64_t i = 0; i < lines; i++) {
      for (int64_t p = 0; p < elements; p++) {
        memcpy(copy[i] + p * size, src + i * line_step + p * depth_step, (size_t)size);
      }
    }
    load_lines(square, copy[0], rounds, lines, sizeof copy[0], elements);
  }
  if (by_steps != (line_step == size)) transpose_square(square);
}

// Packs lines of `depth` elements into the order of B: dst[p * panel + i] is pair p of line i. Or into the order of A:
// squares whose rows are lines, those of the first 16 pairs first.
LOCAL void pack_lines(void *dst, int64_t panel, const char *src, const bool rounds, int64_t width, int64_t line_step,
                      int64_t depth, int64_t depth_step, const bool by_steps) {
  const int64_t size = rounds ? 4 : 2;
  __m512i *to = dst;
  for (int64_t p = 0; p < depth; p += 2 * SQUARE) {
    for (int64_t i = 0; i < panel; i += SQUARE, to += SQUARE) {
      __m512i square[SQUARE];
      load_square(square, src + (i * line_step + p * depth_step) * size, rounds, max64(0, min64(SQUARE, width - i)),
                  line_step * size, min64(2 * SQUARE, depth - p), depth_step * size, by_steps);
#pragma GCC unroll 16
      for (int q = 0; q < SQUARE; q++) {
        __m512i *row = by_steps ? (__m512i *)((int32_t *)dst + (p / 2 + q) * panel + i) : to + q;
        _mm512_storeu_si512(row, square[q]);
      }
    }
  }
}

#define PACK(name, by_steps)                                                                                         \
  VECTORS static void name(void *dst, int64_t panel, const void *src, int dtype, int64_t width, int64_t line_step,   \
                           int64_t depth, int64_t depth_step) {                                                      \
    if (dtype == GEMM_ROUNDED) pack_lines(dst, panel, src, true, width, line_step, depth, depth_step, by_steps);     \
    else pack_lines(dst, panel, src, false, width, line_step, depth, depth_step, by_steps);                          \
  }
PACK(pack_pairs, true)
PACK(pack_squares, false)

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
#undef VECTORS
#undef PACK
#undef EACH_TILE
#undef ZERO
