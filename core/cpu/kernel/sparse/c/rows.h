// Rows of products, for every floating dtype: see plait_each_float.h.

// A tile of W columns of y. The sums stay in registers.
#define TILE(W)                                                                                              \
  PLAIT_INLINE void FN(tile_##W)(const struct csr_job *j, int64_t first, int64_t last, const T *x, T *y) {   \
    ACC sum[W] = {0};                                                                                        \
    const T *values = j->values;                                                                             \
    for (int64_t k = first; k < last; k++) {                                                                 \
      if (k + AHEAD < j->s->entries) prefetch(j, k + AHEAD, x, sizeof(T));                                   \
      ACC v = LOAD(values[j->s->order ? j->s->order[k] : k]);                                                \
      const T *from = x + j->s->col[k] * j->n;                                                               \
      _Pragma("omp simd") for (int64_t i = 0; i < W; i++) sum[i] += v * LOAD(from[i]);                       \
    }                                                                                                        \
    _Pragma("omp simd") for (int64_t i = 0; i < W; i++) y[i] = STORE(sum[i]);                                \
  }
TILE(64)
TILE(32)
TILE(16)
TILE(8)
TILE(4)
TILE(1)
#undef TILE

PLAIT_CLONES static void FN(rows)(const struct csr_job *j, int64_t row, int64_t end) {
  const T *x = j->a;
  T *y = j->out;
  for (; row < end; row++) {
    int64_t first = j->s->crow[row], last = j->s->crow[row + 1], c = 0, n = j->n;
    T *to = y + row * n;
    if (!row_is_good((struct csr_job *)j, row)) continue;
    for (; c + 64 <= n; c += 64) FN(tile_64)(j, first, last, x + c, to + c);
    if (c + 32 <= n) FN(tile_32)(j, first, last, x + c, to + c), c += 32;
    if (c + 16 <= n) FN(tile_16)(j, first, last, x + c, to + c), c += 16;
    if (c + 8 <= n) FN(tile_8)(j, first, last, x + c, to + c), c += 8;
    if (c + 4 <= n) FN(tile_4)(j, first, last, x + c, to + c), c += 4;
    for (; c < n; c++) FN(tile_1)(j, first, last, x + c, to + c);
  }
}

PLAIT_CLONES static void FN(entries)(const struct csr_job *j, int64_t row, int64_t end) {
  T *values = j->out;
  for (; row < end; row++) {
    int64_t first = j->s->crow[row], last = j->s->crow[row + 1], n = j->n;
    const T *a = (const T *)j->a + row * n;
    if (!row_is_good((struct csr_job *)j, row)) continue;
    for (int64_t k = first; k < last; k++) {
      const T *b = (const T *)j->b + j->s->col[k] * n;
      ACC sum = 0;
      _Pragma("omp simd reduction(+ : sum)") for (int64_t i = 0; i < n; i++) sum += LOAD(a[i]) * LOAD(b[i]);
      values[j->s->order ? j->s->order[k] : k] = STORE(sum);
    }
  }
}
