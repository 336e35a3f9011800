// Softmax over columns: element (i, c) of an n x w block is at i*stride + c, and each column is normalised. Vector
// lanes are columns. A block of few columns is contiguous (stride == w), so `fold` consecutive rows are treated as one
// wide row. Then each column has `fold` copies in a wide row; their maxima and sums are combined, and the results are
// broadcast to all copies.
#ifdef FN

struct FN(columns) {
  ACC max[WIDE_BLOCK], scale[WIDE_BLOCK], part[WIDE_BLOCK];
  double sum[WIDE_BLOCK];
};

// The width of the wide row that starts at row i.
PLAIT_INLINE int64_t FN(width)(int64_t i, int64_t n, int64_t w, int64_t fold) {
  return n - i < fold ? (n - i) * w : fold * w;
}

PLAIT_INLINE void FN(add_part)(struct FN(columns) *c, int64_t wide) {
#pragma omp simd
  for (int64_t j = 0; j < wide; j++) {
    c->sum[j] += (double)c->part[j];
    c->part[j] = 0;
  }
}

PLAIT_INLINE void FN(clear)(struct FN(columns) *c, int64_t wide) {
  memset(c->sum, 0, (size_t)wide * sizeof *c->sum);
  memset(c->part, 0, (size_t)wide * sizeof *c->part);
}

PLAIT_INLINE void FN(fold_sums)(struct FN(columns) *c, int64_t w, int64_t wide) {
  for (int64_t copy = w; copy < wide; copy += w) {
    for (int64_t j = 0; j < w; j++) c->sum[j] += c->sum[copy + j];
  }
}

PLAIT_INLINE void FN(spread)(ACC *v, int64_t w, int64_t wide) {
  for (int64_t j = w; j < wide; j++) v[j] = v[j - w];
}

// Updates c->max to include rows [first, last), and rescales c->sum to the new maxima. c->scale is the maximum, or 0
// while the maximum is -inf, so that exp(x - scale) is 0 or NaN there.
PLAIT_INLINE void FN(raise_max)(struct FN(columns) *c, const T *x, int64_t first, int64_t last, int64_t n, int64_t w,
                                int64_t stride, int64_t fold) {
  int64_t wide = fold * w;
  memcpy(c->part, c->max, (size_t)wide * sizeof(ACC));
  for (int64_t i = first; i < last; i += fold) {
    const T *xi = x + i * stride;
    int64_t len = FN(width)(i, n, w, fold);
#pragma omp simd
    for (int64_t j = 0; j < len; j++) {
      ACC v = LOAD(xi[j]);
      c->max[j] = v > c->max[j] ? v : c->max[j];
    }
  }
#pragma omp simd
  for (int64_t j = 0; j < wide; j++) c->scale[j] = c->max[j] == -ACC_INFINITY ? 0 : c->max[j];
  if (first > 0) {
#pragma omp simd
    for (int64_t j = 0; j < wide; j++) c->sum[j] *= (double)EXP(c->part[j] - c->scale[j]);
  }
  memset(c->part, 0, (size_t)wide * sizeof(ACC));
}

// Combines the maxima and sums of the copies of each column.
PLAIT_INLINE void FN(fold_columns)(struct FN(columns) *c, int64_t w, int64_t wide) {
  if (wide == w) return;
  memcpy(c->part, c->max, (size_t)wide * sizeof(ACC));
  for (int64_t copy = w; copy < wide; copy += w) {
    for (int64_t j = 0; j < w; j++) c->max[j] = LARGER(c->max[j], c->part[copy + j]);
  }
  FN(spread)(c->max, w, wide);
#pragma omp simd
  for (int64_t j = 0; j < wide; j++) {
    double s = c->sum[j] * (double)EXP(c->part[j] - (c->max[j] == -ACC_INFINITY ? 0 : c->max[j]));
    // A copy whose maximum is -inf has a sum of 0 or NaN.
    c->sum[j] = c->part[j] == -ACC_INFINITY ? c->sum[j] : s;
  }
  FN(fold_sums)(c, w, wide);
}

// Reads a block of rows for its maxima and, while it is in the cache, for its sums. Afterwards reads all rows again for
// the results.
PLAIT_CLONES static void FN(softmax_columns)(const T *restrict x, T *restrict y, int64_t n, int64_t w, int64_t stride,
                                             int64_t fold, int log_) {
  struct FN(columns) c;
  int64_t wide = fold * w;
  memset(c.sum, 0, (size_t)wide * sizeof *c.sum);
  for (int64_t j = 0; j < wide; j++) c.max[j] = -ACC_INFINITY;
  for (int64_t b = 0; b < n; b += SUM_ROWS * fold) {
    int64_t end = n - b < SUM_ROWS * fold ? n : b + SUM_ROWS * fold;
    FN(raise_max)(&c, x, b, end, n, w, stride, fold);
    for (int64_t i = b; i < end; i += fold) {
      const T *xi = x + i * stride;
      int64_t len = FN(width)(i, n, w, fold);
#pragma omp simd
      for (int64_t j = 0; j < len; j++) c.part[j] += EXP(LOAD(xi[j]) - c.scale[j]);
    }
    FN(add_part)(&c, wide);
  }
  FN(fold_columns)(&c, w, wide);
  for (int64_t j = 0; j < w; j++) c.scale[j] = (ACC)(log_ ? log(c.sum[j]) : 1 / c.sum[j]);
  FN(spread)(c.scale, w, wide);
  for (int64_t i = 0; i < n; i += fold) {
    const T *xi = x + i * stride;
    T *yi = y + i * stride;
    int64_t len = FN(width)(i, n, w, fold);
    if (log_) {
#pragma omp simd
      for (int64_t j = 0; j < len; j++) yi[j] = STORE(LOAD(xi[j]) - c.max[j] - c.scale[j]);
    } else {
#pragma omp simd
      for (int64_t j = 0; j < len; j++) yi[j] = STORE(EXP(LOAD(xi[j]) - c.max[j]) * c.scale[j]);
    }
  }
}

PLAIT_CLONES static void FN(softmax_columns_grad)(const T *restrict y, const T *restrict dy, T *restrict dx, int64_t n,
                                                  int64_t w, int64_t stride, int64_t fold, int log_) {
  struct FN(columns) c;
  int64_t wide = fold * w;
  FN(clear)(&c, wide);
  for (int64_t i = 0, k = 1; i < n; i += fold, k++) {
    const T *yi = y + i * stride, *dyi = dy + i * stride;
    int64_t len = FN(width)(i, n, w, fold);
    if (log_) {
#pragma omp simd
      for (int64_t j = 0; j < len; j++) c.part[j] += LOAD(dyi[j]);
    } else {
#pragma omp simd
      for (int64_t j = 0; j < len; j++) c.part[j] += LOAD(dyi[j]) * LOAD(yi[j]);
    }
    if (k % SUM_ROWS == 0) FN(add_part)(&c, wide);
  }
  FN(add_part)(&c, wide);
  FN(fold_sums)(&c, w, wide);
  for (int64_t j = 0; j < w; j++) c.scale[j] = (ACC)c.sum[j];
  FN(spread)(c.scale, w, wide);

  for (int64_t i = 0; i < n; i += fold) {
    const T *yi = y + i * stride, *dyi = dy + i * stride;
    T *dxi = dx + i * stride;
    int64_t len = FN(width)(i, n, w, fold);
    if (log_) {
#pragma omp simd
      for (int64_t j = 0; j < len; j++) dxi[j] = STORE(LOAD(dyi[j]) - EXP(LOAD(yi[j])) * c.scale[j]);
    } else {
#pragma omp simd
      for (int64_t j = 0; j < len; j++) dxi[j] = STORE(LOAD(yi[j]) * (LOAD(dyi[j]) - c.scale[j]));
    }
  }
}

static void FN(task_columns)(const struct softmax_args *a, int64_t outer, int64_t column, int64_t w) {
  int64_t at = outer * a->n * a->inner + column;
  const T *in = (const T *)a->in + at;
  T *out = (T *)a->out + at;
  if (a->dy) {
    FN(softmax_columns_grad)(in, (const T *)a->dy + at, out, a->n, w, a->inner, a->fold, a->log);
  } else {
    FN(softmax_columns)(in, out, a->n, w, a->inner, a->fold, a->log);
  }
}

#endif
