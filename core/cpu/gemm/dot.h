// Dot products: part of tile.h.

typedef T NAME(four) __attribute__((vector_size(4 * sizeof(T)), aligned(sizeof(T)), may_alias));

// Sets sums to those of the lanes of four vectors, each by halves.
LOCAL void NAME(fold)(NAME(four) *sums, V a, V b, V c, V d) {
#if LANES == 2
  V s = __builtin_shufflevector(a, b, 0, 2) + __builtin_shufflevector(a, b, 1, 3);
  V t = __builtin_shufflevector(c, d, 0, 2) + __builtin_shufflevector(c, d, 1, 3);
  *sums = __builtin_shufflevector(s, t, 0, 1, 2, 3);
#else
#if LANES == 16
#define HALVES(x) (__builtin_shufflevector(x, x, 0, 1, 2, 3, 4, 5, 6, 7) + __builtin_shufflevector(x, x, 8, 9, 10, 11, 12, 13, 14, 15))
#else
#define HALVES(x) (x)
#endif
#if LANES >= 8
#define QUARTERS(x) (__builtin_shufflevector(HALVES(x), HALVES(x), 0, 1, 2, 3) + __builtin_shufflevector(HALVES(x), HALVES(x), 4, 5, 6, 7))
#else
#define QUARTERS(x) (x)
#endif
  NAME(four) p = QUARTERS(a), q = QUARTERS(b), r = QUARTERS(c), s = QUARTERS(d);
  NAME(four) pq = __builtin_shufflevector(p, q, 0, 4, 1, 5) + __builtin_shufflevector(p, q, 2, 6, 3, 7);
  NAME(four) rs = __builtin_shufflevector(r, s, 0, 4, 1, 5) + __builtin_shufflevector(r, s, 2, 6, 3, 7);
  *sums = __builtin_shufflevector(pq, rs, 0, 1, 4, 5) + __builtin_shufflevector(pq, rs, 2, 3, 6, 7);
#undef HALVES
#undef QUARTERS
#endif
}

// Adds to out[i * out_row + j] the dot product of row i of A and line j of B. All are contiguous along K. Each dot
// product has LANES * chains accumulators, which are added pairwise in the end.
LOCAL void NAME(dots)(const int rows, const int lines, const int chains, int64_t k, const T *restrict a, int64_t a_row,
                      const T *restrict b, int64_t b_line, T *restrict out, int64_t out_row) {
  V acc[4][4][4];
#pragma GCC unroll 4
  for (int i = 0; i < rows; i++) {
#pragma GCC unroll 4
    for (int j = 0; j < lines; j++) {
#pragma GCC unroll 4
      for (int c = 0; c < chains; c++) acc[i][j][c] = (V){0};
    }
  }
  int64_t p = 0;
#pragma GCC unroll 1
  for (; p + chains * LANES <= k; p += chains * LANES) {
#pragma GCC unroll 4
    for (int c = 0; c < chains; c++) {
#pragma GCC unroll 4
      for (int j = 0; j < lines; j++) {
        V y = *(const V *)(b + j * b_line + p + c * LANES);
#pragma GCC unroll 4
        for (int i = 0; i < rows; i++) acc[i][j][c] += *(const V *)(a + i * a_row + p + c * LANES) * y;
      }
    }
  }
  for (; p < k; p += LANES) {
    int64_t left = k - p < LANES ? k - p : LANES;
#pragma GCC unroll 4
    for (int j = 0; j < lines; j++) {
      V y = NAME(load_part)(b + j * b_line + p, left);
#pragma GCC unroll 4
      for (int i = 0; i < rows; i++) acc[i][j][0] += NAME(load_part)(a + i * a_row + p, left) * y;
    }
  }
#pragma GCC unroll 4
  for (int i = 0; i < rows; i++) {
    NAME(four) sums;
    if (lines == 4) {
      NAME(fold)(&sums, acc[i][0][0], acc[i][1][0], acc[i][2][0], acc[i][3][0]);
      *(NAME(four) *)(out + i * out_row) += sums;
    } else {
      NAME(fold)(&sums, acc[i][0][0], acc[i][0][1], acc[i][0][2], acc[i][0][3]);
      out[i * out_row] += (sums[0] + sums[1]) + (sums[2] + sums[3]);
    }
  }
}

#define DOTS(rows)                                                                                             \
  TARGET static void NAME(dots_##rows)(int64_t lines, int64_t k, const void *a, int64_t a_row, const void *b,  \
                                       int64_t b_line, void *out, int64_t out_row) {                           \
    int64_t j = 0;                                                                                             \
    for (; j + 4 <= lines; j += 4) {                                                                           \
      NAME(dots)(rows, 4, 1, k, a, a_row, (const T *)b + j * b_line, b_line, (T *)out + j, out_row);           \
    }                                                                                                          \
    for (; j < lines; j++) {                                                                                   \
      NAME(dots)(rows, 1, 4, k, a, a_row, (const T *)b + j * b_line, b_line, (T *)out + j, out_row);           \
    }                                                                                                          \
  }

DOTS(1)
DOTS(2)
DOTS(3)
DOTS(4)

#undef DOTS
