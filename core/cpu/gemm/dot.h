// Dot products: part of tile.h.

// Adds to out[i * out_row + j] the dot product of row i of A and line j of B. All are contiguous along K. Each dot
// product has LANES * chains accumulators, which are added pairwise; the rest of K follows.
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
#pragma GCC unroll 4
  for (int i = 0; i < rows; i++) {
#pragma GCC unroll 4
    for (int j = 0; j < lines; j++) {
      V v = acc[i][j][0];
      if (chains == 4) v = (v + acc[i][j][1]) + (acc[i][j][2] + acc[i][j][3]);
      T lane[LANES];
      memcpy(lane, &v, sizeof v);
      for (int half = LANES / 2; half > 0; half /= 2) {
        for (int q = 0; q < half; q++) lane[q] += lane[q + half];
      }
      T rest = 0;
      for (int64_t q = p; q < k; q++) rest += a[i * a_row + q] * b[j * b_line + q];
      out[i * out_row + j] += lane[0] + rest;
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
