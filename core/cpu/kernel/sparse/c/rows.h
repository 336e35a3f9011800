// Rows of products, for every floating dtype: see plait_each_float.h.

// A tile of W columns of y. The sums stay in registers.
#define TILE(W)                                                                                               \
  PLAIT_INLINE void FN(tile_##W)(const struct csr_job *j, bool ordered, int64_t first, int64_t last,          \
                                 const T *restrict x, T *restrict y) {                                        \
    ACC sum[W] = {0};                                                                                         \
    const T *values = j->values;                                                                              \
    const int64_t *col = j->s->col, *order = j->s->order;                                                     \
    int64_t n = j->n, end = j->s->entries - 1;                                                                \
    for (int64_t k = first; k < last; k++) {                                                                  \
      __builtin_prefetch(x + col[k + AHEAD < end ? k + AHEAD : end] * n);                                     \
      ACC v = LOAD(values[ordered ? order[k] : k]);                                                           \
      const T *from = x + col[k] * n;                                                                         \
      _Pragma("omp simd") for (int64_t i = 0; i < W; i++) sum[i] += v * LOAD(from[i]);                        \
    }                                                                                                         \
    _Pragma("omp simd") for (int64_t i = 0; i < W; i++) y[i] = STORE(sum[i]);                                 \
  }
TILE(64)
TILE(32)
TILE(16)
TILE(8)
TILE(4)
TILE(1)
#undef TILE

PLAIT_INLINE void FN(rows_of)(struct csr_job *j, bool ordered, bool good, int64_t row, int64_t end) {
  const T *x = j->a;
  const int64_t *crow = j->s->crow;
  int64_t n = j->n;
  for (; row < end; row++) {
    if (!good && !row_is_good(j, row)) continue;
    int64_t first = crow[row], last = crow[row + 1], c = 0;
    T *to = (T *)j->out + row * n;
    for (; c + 64 <= n; c += 64) FN(tile_64)(j, ordered, first, last, x + c, to + c);
    if (c + 32 <= n) FN(tile_32)(j, ordered, first, last, x + c, to + c), c += 32;
    if (c + 16 <= n) FN(tile_16)(j, ordered, first, last, x + c, to + c), c += 16;
    if (c + 8 <= n) FN(tile_8)(j, ordered, first, last, x + c, to + c), c += 8;
    if (c + 4 <= n) FN(tile_4)(j, ordered, first, last, x + c, to + c), c += 4;
    for (; c < n; c++) FN(tile_1)(j, ordered, first, last, x + c, to + c);
  }
}

PLAIT_CLONES static void FN(rows)(struct csr_job *j, int64_t row, int64_t end) {
  bool good = all_are_good(j->s, row, end);
  if (j->s->order) {
    FN(rows_of)(j, true, good, row, end);
  } else {
    FN(rows_of)(j, false, good, row, end);
  }
}

PLAIT_CLONES static void FN(entries)(struct csr_job *j, int64_t row, int64_t end) {
  T *values = j->out;
  const int64_t *col = j->s->col, *order = j->s->order;
  int64_t n = j->n;
  bool good = all_are_good(j->s, row, end);
  for (; row < end; row++) {
    if (!good && !row_is_good(j, row)) continue;
    const T *restrict a = (const T *)j->a + row * n;
    for (int64_t k = j->s->crow[row]; k < j->s->crow[row + 1]; k++) {
      __builtin_prefetch((const T *)j->b + col[plait_min64(k + AHEAD, j->s->entries - 1)] * n);
      const T *restrict b = (const T *)j->b + col[k] * n;
      ACC sum = 0;
      _Pragma("omp simd reduction(+ : sum)") for (int64_t i = 0; i < n; i++) sum += LOAD(a[i]) * LOAD(b[i]);
      values[order ? order[k] : k] = STORE(sum);
    }
  }
}
