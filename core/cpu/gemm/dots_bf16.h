// Kernels for bfloat16 by the dot products of AVX-512 BF16: products of pairs of elements along K are summed in float32.
// Subnormal numbers count as zero. Part of variants.c, after the kernels for float32 and AVX-512.
//
// Panels are made of squares of 16 lines and 16 pairs, the tiles of AMX, with zeros after the last line and the last
// element of K.

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

// Loads up to 16 lines that are contiguous along K: a row of 16 pairs for each. Memory is asked for what follows in these
// lines, or if by_panels for the same part of the next panel's.
LOCAL void load_lines(__m512i *square, const char *src, bool rounds, int64_t lines, int64_t line_step,
                      int64_t elements, const bool by_panels) {
#pragma GCC unroll 16
  for (int i = 0; i < SQUARE; i++) {
    const char *line = src + i * line_step, *ahead = line + (rounds ? 2 : 1) * GEMM_PACK_AHEAD;
    if (by_panels) ahead = line + PLAITK_GEMM_TILE * line_step;
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
                       int64_t elements, int64_t depth_step, bool by_steps, const bool by_panels) {
  const int64_t size = rounds ? 4 : 2;
  if (line_step == size) {
    load_steps(square, src, rounds, lines, elements, depth_step);
  } else if (depth_step == size) {
    load_lines(square, src, rounds, lines, line_step, elements, by_panels);
  } else {
    char copy[SQUARE][2 * SQUARE * 4];
    for (int64_t i = 0; i < lines; i++) {
      for (int64_t p = 0; p < elements; p++) {
        memcpy(copy[i] + p * size, src + i * line_step + p * depth_step, (size_t)size);
      }
    }
    load_lines(square, copy[0], rounds, lines, sizeof copy[0], elements, false);
  }
  if (by_steps != (line_step == size)) transpose_square(square);
}

// Packs lines of `depth` elements into the order of B: dst[p * panel + i] is pair p of line i. Or into the order of A:
// squares whose rows are lines, those of the first 16 pairs first.
LOCAL void pack_lines(void *dst, int64_t panel, const char *src, const bool rounds, int64_t width, int64_t line_step,
                      int64_t depth, int64_t depth_step, const bool by_steps, const bool by_panels) {
  const int64_t size = rounds ? 4 : 2;
  __m512i *to = dst;
  for (int64_t p = 0; p < depth; p += 2 * SQUARE) {
    for (int64_t i = 0; i < panel; i += SQUARE, to += SQUARE) {
      __m512i square[SQUARE];
      load_square(square, src + (i * line_step + p * depth_step) * size, rounds, max64(0, min64(SQUARE, width - i)),
                  line_step * size, min64(2 * SQUARE, depth - p), depth_step * size, by_steps, by_panels);
#pragma GCC unroll 16
      for (int q = 0; q < SQUARE; q++) {
        __m512i *row = by_steps ? (__m512i *)((int32_t *)dst + (p / 2 + q) * panel + i) : to + q;
        _mm512_storeu_si512(row, square[q]);
      }
    }
  }
}

#define PACK(name, ...)                                                                                              \
  VECTORS static void name(void *dst, int64_t panel, const void *src, int dtype, int64_t width, int64_t line_step,   \
                           int64_t depth, int64_t depth_step) {                                                      \
    if (dtype == GEMM_ROUNDED) pack_lines(dst, panel, src, true, width, line_step, depth, depth_step, __VA_ARGS__);  \
    else pack_lines(dst, panel, src, false, width, line_step, depth, depth_step, __VA_ARGS__);                       \
  }
PACK(pack_pairs, true, false)
PACK(pack_squares, false, false)
PACK(pack_pairs_ahead, true, true)
PACK(pack_squares_ahead, false, true)

// Rows whose sums are in registers at a time: with two vectors for each, half of the registers, which hide how long a sum takes.
#define ROWS 8

// Multiplies `group` rows of a panel of A, of which the first `rows` have a place in C. a_block is the bytes of A's squares for 16 pairs.
LOCAL void multiply_rows(const int group, const int vectors, int64_t rows, int64_t k, const char *a, int64_t a_block,
                         const __m512i *b, float *out, int64_t out_row, int add) {
  __m512 sums[ROWS][2];
#pragma GCC unroll 8
  for (int i = 0; i < group; i++) {
    for (int v = 0; v < vectors; v++) {
      sums[i][v] = add && i < rows ? _mm512_loadu_ps(out + i * out_row + v * SQUARE) : _mm512_setzero_ps();
    }
  }
#pragma GCC unroll 1
  for (; k > 0; k -= SQUARE, a += a_block) {
#pragma GCC unroll 4
    for (int p = 0; p < SQUARE; p++, b += vectors) {
      __m512bh first = (__m512bh)_mm512_loadu_si512(b), second = vectors > 1 ? (__m512bh)_mm512_loadu_si512(b + 1) : first;
#pragma GCC unroll 8
      for (int i = 0; i < group; i++) {
        int32_t pair;
        memcpy(&pair, a + i * 64 + p * 4, sizeof pair);
        __m512bh row = (__m512bh)_mm512_set1_epi32(pair);
        sums[i][0] = _mm512_dpbf16_ps(sums[i][0], row, first);
        if (vectors > 1) sums[i][1] = _mm512_dpbf16_ps(sums[i][1], row, second);
      }
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < group; i++) {
    for (int v = 0; v < vectors && i < rows; v++) _mm512_storeu_ps(out + i * out_row + v * SQUARE, sums[i][v]);
  }
}

// Multiplies by groups of rows. Few rows have smaller groups.
LOCAL void multiply_dots(const int vectors, int64_t rows, int64_t k, const char *a, const __m512i *b, float *out,
                         int64_t out_row, int add) {
  const int64_t square = SQUARE * 64, a_block = rows > SQUARE ? 2 * square : square;
  for (int64_t i = 0; i < rows; i += ROWS) {
    const char *from = a + i / SQUARE * square + i % SQUARE * 64;
    float *to = out + i * out_row;
    int64_t left = rows - i;
    if (left > ROWS / 2) multiply_rows(ROWS, vectors, left, k, from, a_block, b, to, out_row, add);
    else if (left > ROWS / 4) multiply_rows(ROWS / 2, vectors, left, k, from, a_block, b, to, out_row, add);
    else multiply_rows(ROWS / 4, vectors, left, k, from, a_block, b, to, out_row, add);
  }
}

VECTORS static void micro_dots(int64_t rows, int64_t vectors, int64_t k, const void *a, const void *b, void *out,
                               int64_t out_row, int add) {
  if (vectors > 1) multiply_dots(2, rows, k, a, b, out, out_row, add);
  else multiply_dots(1, rows, k, a, b, out, out_row, add);
}

#define LINE_AHEAD 2048  // bytes of a column after those being multiplied, which memory is asked for

// Computes the dot products of a few rows with `lines` columns. Each has as many sums as hide how long one takes, over
// vectors of K in turn, which are added in pairs in the end.
LOCAL void dot_lines(const int rows, const int lines, const bool rounds, int64_t k, const char *a, int64_t a_row,
                     const char *b, int64_t b_line, float *out, int64_t out_row) {
  const int chains = rows == 1 ? 4 : rows == 2 ? 2 : 1, size = rounds ? 4 : 2;
  __m512 sums[4][4][4];
#pragma GCC unroll 4
  for (int i = 0; i < rows; i++) {
#pragma GCC unroll 4
    for (int j = 0; j < lines; j++) {
#pragma GCC unroll 4
      for (int c = 0; c < chains; c++) sums[i][j][c] = _mm512_setzero_ps();
    }
  }
#pragma GCC unroll 1
  for (int64_t p = 0; p < k; p += 2 * SQUARE * chains) {
#pragma GCC unroll 4
    for (int c = 0; c < chains; c++) {
      int64_t q = p + 2 * SQUARE * c, left = max64(0, min64(2 * SQUARE, k - q));
      __m512bh row[4];
#pragma GCC unroll 4
      for (int i = 0; i < rows; i++) row[i] = (__m512bh)load_elements(a + i * a_row + q * 2, false, left);
#pragma GCC unroll 4
      for (int j = 0; j < lines; j++) {
        __builtin_prefetch(b + j * b_line + q * size + LINE_AHEAD, 0, 2);
        __m512bh line = (__m512bh)load_elements(b + j * b_line + q * size, rounds, left);
#pragma GCC unroll 4
        for (int i = 0; i < rows; i++) sums[i][j][c] = _mm512_dpbf16_ps(sums[i][j][c], row[i], line);
      }
    }
  }
#pragma GCC unroll 4
  for (int i = 0; i < rows; i++) {
#pragma GCC unroll 4
    for (int j = 0; j < lines; j++) {
      __m512 sum = sums[i][j][0];
      if (chains > 1) sum = _mm512_add_ps(sum, sums[i][j][1]);
      if (chains > 2) sum = _mm512_add_ps(sum, _mm512_add_ps(sums[i][j][2], sums[i][j][3]));
      out[i * out_row + j] = _mm512_reduce_add_ps(sum);
    }
  }
}

LOCAL void dot_rows(const int rows, const bool rounds, int64_t lines, int64_t k, const char *a, int64_t a_row,
                    const char *b, int64_t b_line, float *out, int64_t out_row) {
  int64_t j = 0;
  for (; j + 4 <= lines; j += 4) dot_lines(rows, 4, rounds, k, a, a_row, b + j * b_line, b_line, out + j, out_row);
  for (; j < lines; j++) dot_lines(rows, 1, rounds, k, a, a_row, b + j * b_line, b_line, out + j, out_row);
}

#define DOT_ROWS(rows) dot_rows(rows, rounds, lines, k, a, a_row, b, b_line, out, out_row)

LOCAL void dot_any(int64_t rows, const bool rounds, int64_t lines, int64_t k, const char *a, int64_t a_row,
                   const char *b, int64_t b_line, float *out, int64_t out_row) {
  if (rows == 1) DOT_ROWS(1);
  else if (rows == 2) DOT_ROWS(2);
  else if (rows == 3) DOT_ROWS(3);
  else DOT_ROWS(4);
}

VECTORS static void pair_dots(int64_t rows, int64_t lines, int64_t k, const void *a, int64_t a_row, const void *b,
                              int dtype, int64_t b_line, float *out, int64_t out_row) {
  if (dtype == GEMM_ROUNDED) dot_any(rows, true, lines, k, a, a_row * 2, b, b_line * 4, out, out_row);
  else dot_any(rows, false, lines, k, a, a_row * 2, b, b_line * 2, out, out_row);
}

static const gemm_kernels kernels_bf16 = {
    .size = 4, .lanes = SQUARE, .mr = 2 * SQUARE, .nv = 2, .pair = 2, .unit = SQUARE, .a_lanes = SQUARE,
    .depth_bytes = 512, .pairs = micro_dots, .pair_dots = pair_dots, .pack = pack_pairs_ahead,
    .pack_a = pack_squares_ahead, .epilogue = epilogue_f32_avx512,
};

#undef LOCAL
#undef VECTORS
#undef PACK
#undef ROWS
#undef DOT_ROWS
#undef LINE_AHEAD
