// Layer and RMS norm of contiguous rows. Row r uses the weights of group r % groups.
#ifdef FN

// y = ((x - mean)*rstd + shift)*w + b, where w and b may be NULL.
PLAIT_INLINE void FN(layer_out)(const T *x, T *y, const ACC *w, const ACC *b, int64_t n, ACC mean, ACC rstd, ACC shift) {
  if (w && b) {
#pragma omp simd
    for (int64_t i = 0; i < n; i++) y[i] = STORE(((LOAD(x[i]) - mean) * rstd + shift) * w[i] + b[i]);
  } else if (w) {
#pragma omp simd
    for (int64_t i = 0; i < n; i++) y[i] = STORE(((LOAD(x[i]) - mean) * rstd + shift) * w[i]);
  } else if (b) {
#pragma omp simd
    for (int64_t i = 0; i < n; i++) y[i] = STORE((LOAD(x[i]) - mean) * rstd + (shift + b[i]));
  } else {
#pragma omp simd
    for (int64_t i = 0; i < n; i++) y[i] = STORE((LOAD(x[i]) - mean) * rstd + shift);
  }
}

PLAIT_CLONES static void FN(layer_rows)(const struct layer_args *a, int64_t first, int64_t rows) {
  int64_t n = a->n;
  _Alignas(PLAIT_LINE) T part[PLAIT_STREAM_PART / sizeof(T)];
  for (int64_t r = first; r < first + rows; r++) {
    const T *x = (const T *)a->x + r * n;
    T *y = (T *)a->y + r * n;
    double m = 0, m2 = a->rms ? FN(sum_squares)(x, n) : FN(moments)(x, n, &m);
    ACC mean = (ACC)m, rstd = (ACC)(1 / sqrt(m2 / (double)n + a->eps)), shift = FN(mean_shift)(m, mean, rstd);
    if (a->mean) ((ACC *)a->mean)[r] = mean;
    if (a->rstd) ((ACC *)a->rstd)[r] = rstd;
    const ACC *w = a->w ? (const ACC *)a->w + r % a->groups * n : NULL;
    const ACC *b = a->b ? (const ACC *)a->b + r % a->groups * n : NULL;
    if (!a->stream) {
      FN(layer_out)(x, y, w, b, n, mean, rstd, shift);
      continue;
    }
    for (int64_t i = 0, len; i < n; i += len) {
      len = plait_stream_part(y + i, n - i, sizeof(T));
      plait_prefetch(x + n + i, len * (int64_t)sizeof(T));
      FN(layer_out)(x + i, part, w ? w + i : NULL, b ? b + i : NULL, len, mean, rstd, shift);
      plait_stream(y + i, part, len * (int64_t)sizeof(T));
    }
  }
  if (a->stream) plait_stream_end();
}

// Adds dy*h and dy of the rows to part. It takes several rows of one group at a time, to access part less often.
PLAIT_INLINE void FN(layer_part)(const struct layer_args *a, int64_t first, int64_t rows, ACC *part) {
  int64_t n = a->n, width = n * a->groups, last = first + rows;
  const ACC *mean = a->mean, *rstd = a->rstd;
  for (int64_t g = 0; g < a->groups; g++) {
    ACC *restrict pw = part + (first + g) % a->groups * n, *restrict pb = pw + width;
    int64_t r = first + g, step = a->groups;
    for (; r + 3 * step < last; r += 4 * step) {
      const T *x[4], *d[4];
      ACC m[4], s[4];
      for (int k = 0; k < 4; k++) {
        x[k] = (const T *)a->x + (r + k * step) * n;
        d[k] = (const T *)a->dy + (r + k * step) * n;
        m[k] = a->rms ? 0 : mean[r + k * step];
        s[k] = rstd[r + k * step];
      }
      const T *restrict x0 = x[0], *restrict x1 = x[1], *restrict x2 = x[2], *restrict x3 = x[3];
      const T *restrict d0 = d[0], *restrict d1 = d[1], *restrict d2 = d[2], *restrict d3 = d[3];
      ACC m0 = m[0], m1 = m[1], m2 = m[2], m3 = m[3], s0 = s[0], s1 = s[1], s2 = s[2], s3 = s[3];
#pragma omp simd
      for (int64_t i = 0; i < n; i++) {
        ACC g0 = LOAD(d0[i]), g1 = LOAD(d1[i]), g2 = LOAD(d2[i]), g3 = LOAD(d3[i]);
        ACC h0 = g0 * ((LOAD(x0[i]) - m0) * s0), h1 = g1 * ((LOAD(x1[i]) - m1) * s1);
        ACC h2 = g2 * ((LOAD(x2[i]) - m2) * s2), h3 = g3 * ((LOAD(x3[i]) - m3) * s3);
        pw[i] += (h0 + h1) + (h2 + h3);
        pb[i] += (g0 + g1) + (g2 + g3);
      }
    }
    for (; r < last; r += step) {
      const T *restrict x = (const T *)a->x + r * n, *restrict d = (const T *)a->dy + r * n;
      ACC m = a->rms ? 0 : mean[r], s = rstd[r];
#pragma omp simd
      for (int64_t i = 0; i < n; i++) {
        ACC gi = LOAD(d[i]);
        pw[i] += gi * ((LOAD(x[i]) - m) * s);
        pb[i] += gi;
      }
    }
  }
}

// Let g = dy*w and h = (x - mean)*rstd. Then dx = rstd*(g - mean(g) - h*mean(g*h)) + arrived. RMS norm has no mean(g).
PLAIT_INLINE void FN(layer_row_grad)(const struct layer_args *a, int64_t r) {
  int64_t n = a->n;
  const T *x = (const T *)a->x + r * n, *dy = (const T *)a->dy + r * n;
  T *dx = (T *)a->dx + r * n;
  const ACC *w = a->w ? (const ACC *)a->w + r % a->groups * n : NULL;
  ACC mean = a->rms ? 0 : ((const ACC *)a->mean)[r], rstd = ((const ACC *)a->rstd)[r];
  double s, sx;
  FN(grad_sums)(x, dy, w, n, mean, &s, &sx);
  double inv = 1 / (double)n, rs = (double)rstd;
  ACC c = a->rms ? 0 : (ACC)(-rs * s * inv), b = (ACC)(-rs * rs * rs * sx * inv);
  if (w) {
#pragma omp simd
    for (int64_t i = 0; i < n; i++) dx[i] = STORE(rstd * (LOAD(dy[i]) * w[i]) + b * (LOAD(x[i]) - mean) + c);
  } else {
    FN(grad_affine)(x, dy, dx, n, mean, rstd, b, c);
  }
  if (a->arrived) {
    // Add to the rounded row while it is in the cache. The bits are those of a separate addition.
    const T *restrict more = (const T *)a->arrived + r * n;
#pragma omp simd
    for (int64_t i = 0; i < n; i++) dx[i] = STORE(LOAD(more[i]) + LOAD(dx[i]));
  }
}

// Computes dx of the rows. If part is not NULL, it gets the sums of dy*h and dy over these rows.
PLAIT_CLONES static void FN(layer_rows_grad)(const struct layer_args *a, int64_t first, int64_t rows, void *part) {
  int64_t last = first + rows, block = 4 * a->groups;
  if (part) memset(part, 0, (size_t)(2 * a->n * a->groups) * sizeof(ACC));
  for (int64_t r = first; r < last; r += block) {
    int64_t end = plait_min64(last, r + block);
    for (int64_t i = r; a->dx && i < end; i++) FN(layer_row_grad)(a, i);
    if (part) FN(layer_part)(a, r, end - r, part);
  }
}

// Sums columns [first, first+count) of the chunks' partial sums, at most COLUMN_BLOCK columns.
PLAIT_CLONES static void FN(layer_sum_parts)(const ACC *part, int64_t chunks, int64_t stride, int64_t first,
                                             int64_t count, double *sum) {
  for (int64_t j = 0; j < count; j++) sum[j] = 0;
  for (int64_t k = 0; k < chunks; k++) {
    const ACC *p = part + k * stride + first;
#pragma omp simd
    for (int64_t j = 0; j < count; j++) sum[j] += (double)p[j];
  }
}

#endif
