// Batch norm over pieces of [batch, channels, inner]. With long inner rows, a piece is a segment of one channel of one
// sample. With short ones it is a block of samples by a block of columns, where a column is a (channel, inner) pair.
#ifdef FN

// Writes the sum and the sum of squared deviations of segment p.
PLAIT_CLONES static void FN(segment_stats)(const struct batch_args *a, int64_t p) {
  int64_t len = segment_len(a, p);
  double mean;
  a->part2[p] = FN(moments)((const T *)a->x + segment_at(a, p), len, &mean);
  a->part[p] = mean * (double)len;
}

PLAIT_CLONES static void FN(segment_grad_sums)(const struct batch_args *a, int64_t p) {
  int64_t at = segment_at(a, p);
  FN(grad_sums)((const T *)a->x + at, (const T *)a->dy + at, NULL, segment_len(a, p),
                ((const ACC *)a->mean)[segment_channel(a, p)], &a->part[p], &a->part2[p]);
}

PLAIT_CLONES static void FN(segment_apply)(const struct batch_args *a, int64_t p) {
  int64_t at = segment_at(a, p), len = segment_len(a, p), c = segment_channel(a, p);
  const T *x = (const T *)a->x + at;
  const ACC *k0 = a->coef[0], *k1 = a->coef[1], *k2 = a->coef[2];
  ACC mean = ((const ACC *)a->mean)[c];
  if (a->dy) {
    FN(grad_affine)(x, (const T *)a->dy + at, (T *)a->dx + at, len, mean, k0[c], k1[c], k2[c]);
  } else {
    FN(affine)(x, (T *)a->y + at, len, mean, k0[c], k1[c]);
  }
}

// Sets off and m2 to the sums of x - center and of its square.
PLAIT_INLINE void FN(column_deviations)(const T *x, int64_t rows, int64_t step, int64_t count, const ACC *center, ACC *off,
                                        ACC *m2) {
  for (int64_t j = 0; j < count; j++) off[j] = m2[j] = 0;
  int64_t i = 0;
  for (; i + 3 < rows; i += 4) {
    const T *xi = x + i * step;
#pragma omp simd
    for (int64_t j = 0; j < count; j++) {
      ACC d0 = LOAD(xi[j]) - center[j], d1 = LOAD(xi[j + step]) - center[j];
      ACC d2 = LOAD(xi[j + 2 * step]) - center[j], d3 = LOAD(xi[j + 3 * step]) - center[j];
      off[j] += (d0 + d1) + (d2 + d3);
      m2[j] += (d0 * d0 + d1 * d1) + (d2 * d2 + d3 * d3);
    }
  }
  for (; i < rows; i++) {
    const T *xi = x + i * step;
#pragma omp simd
    for (int64_t j = 0; j < count; j++) {
      ACC d = LOAD(xi[j]) - center[j];
      off[j] += d;
      m2[j] += d * d;
    }
  }
}

// The same as moments, for columns.
PLAIT_CLONES static void FN(column_stats)(const struct batch_args *a, int64_t row, int64_t rows, int64_t column,
                                          int64_t count, double *sum_out, double *m2_out) {
  ACC center[COLUMN_BLOCK], off[COLUMN_BLOCK], m2[COLUMN_BLOCK];
  int64_t step = a->columns;
  const T *x = (const T *)a->x + row * step + column;
  for (int64_t j = 0; j < count; j++) center[j] = 0;
  for (int64_t i = 0; i < SAMPLES; i++) {
    const T *xi = x + i * rows / SAMPLES * step;
#pragma omp simd
    for (int64_t j = 0; j < count; j++) center[j] += LOAD(xi[j]) / SAMPLES;
  }
  FN(column_deviations)(x, rows, step, count, center, off, m2);
  int far = 0;
  for (int64_t j = 0; j < count; j++) far |= (double)off[j] * (double)off[j] > (double)m2[j] * (double)rows * FAR_SHARE;
  if (far) {
    for (int64_t j = 0; j < count; j++) {
      ACC shift = off[j] / (ACC)rows;
      if (shift == shift) center[j] += shift;
    }
    FN(column_deviations)(x, rows, step, count, center, off, m2);
  }
  for (int64_t j = 0; j < count; j++) {
    // With an infinite center there are no deviations.
    double more = off[j] == off[j] ? (double)off[j] : 0, v = (double)m2[j] - more * more / (double)rows;
    sum_out[j] = (double)center[j] * (double)rows + more;
    m2_out[j] = v < 0 ? 0 : v;
  }
}

PLAIT_CLONES static void FN(column_grad_sums)(const struct batch_args *a, int64_t row, int64_t rows, int64_t column,
                                              int64_t count, double *sum, double *sumx) {
  ACC s[COLUMN_BLOCK], sx[COLUMN_BLOCK];
  const ACC *mean = (const ACC *)a->column_mean + column;
  const T *x = (const T *)a->x + row * a->columns + column, *dy = (const T *)a->dy + row * a->columns + column;
  for (int64_t j = 0; j < count; j++) s[j] = sx[j] = 0;
  for (int64_t i = 0; i < rows; i++) {
    const T *xi = x + i * a->columns, *di = dy + i * a->columns;
#pragma omp simd
    for (int64_t j = 0; j < count; j++) {
      ACC g = LOAD(di[j]);
      s[j] += g;
      sx[j] += g * (LOAD(xi[j]) - mean[j]);
    }
  }
  for (int64_t j = 0; j < count; j++) {
    sum[j] = (double)s[j];
    sumx[j] = (double)sx[j];
  }
}

PLAIT_CLONES static void FN(column_apply)(const struct batch_args *a, int64_t row, int64_t rows, int64_t column,
                                          int64_t count) {
  const ACC *mean = (const ACC *)a->column_mean + column;
  const ACC *k0 = (const ACC *)a->coef[0] + column, *k1 = (const ACC *)a->coef[1] + column;
  const ACC *k2 = (const ACC *)a->coef[2] + column;
  for (int64_t i = row; i < row + rows; i++) {
    int64_t at = i * a->columns + column;
    const T *restrict x = (const T *)a->x + at;
    if (a->dy) {
      const T *restrict dy = (const T *)a->dy + at;
      T *restrict dx = (T *)a->dx + at;
#pragma omp simd
      for (int64_t j = 0; j < count; j++)
        dx[j] = STORE(k0[j] * LOAD(dy[j]) + k1[j] * (LOAD(x[j]) - mean[j]) + k2[j]);
    } else {
      T *restrict y = (T *)a->y + at;
#pragma omp simd
      for (int64_t j = 0; j < count; j++) y[j] = STORE((LOAD(x[j]) - mean[j]) * k0[j] + k1[j]);
    }
  }
}

#endif
