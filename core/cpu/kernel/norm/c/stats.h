// Sums over contiguous rows. See plait_each_float.h for the macros.
#ifdef FN

PLAIT_INLINE double FN(sum)(const T *x, int64_t n) {
  double total = 0;
  for (int64_t b = 0; b < n; b += SUM_BLOCK) {
    int64_t end = min64(n, b + SUM_BLOCK), i = b;
    ACC s[PLAIT_LANES] = {0};
    for (; i + PLAIT_LANES <= end; i += PLAIT_LANES) {
#pragma omp simd
      for (int l = 0; l < PLAIT_LANES; l++) s[l] += LOAD(x[i + l]);
    }
#pragma omp simd
    for (int64_t l = 0; l < end - i; l++) s[l] += LOAD(x[i + l]);
    PLAIT_FOLD_LANES(s, PLAIT_PLUS)
    total += (double)s[0];
  }
  return total;
}

// Returns the sum of (x - mean)^2.
PLAIT_INLINE double FN(sum_squares)(const T *x, int64_t n, ACC mean) {
  double total = 0;
  for (int64_t b = 0; b < n; b += SUM_BLOCK) {
    int64_t end = min64(n, b + SUM_BLOCK), i = b;
    ACC s[PLAIT_LANES] = {0};
    for (; i + PLAIT_LANES <= end; i += PLAIT_LANES) {
#pragma omp simd
      for (int l = 0; l < PLAIT_LANES; l++) {
        ACC d = LOAD(x[i + l]) - mean;
        s[l] += d * d;
      }
    }
#pragma omp simd
    for (int64_t l = 0; l < end - i; l++) {
      ACC d = LOAD(x[i + l]) - mean;
      s[l] += d * d;
    }
    PLAIT_FOLD_LANES(s, PLAIT_PLUS)
    total += (double)s[0];
  }
  return total;
}

// Sets *mean and returns the sum of squared deviations from it. Each block is read twice while it is in the cache, and
// the blocks are combined by Chan, Golub and LeVeque's update.
PLAIT_INLINE double FN(moments)(const T *x, int64_t n, double *mean) {
  double m = 0, m2 = 0;
  for (int64_t b = 0; b < n; b += STAT_BLOCK) {
    int64_t len = min64(n - b, STAT_BLOCK);
    double bm = FN(sum)(x + b, len) / (double)len;
    // The block's mean is rounded to ACC; the deviations are taken from the rounded value, and m2 corrected for it.
    ACC rounded = (ACC)bm;
    double off = bm - (double)rounded;
    double bm2 = FN(sum_squares)(x + b, len, rounded) - (double)len * off * off;
    double delta = bm - m, share = (double)len / (double)(b + len);
    m += delta * share;
    m2 += bm2 + delta * delta * (double)b * share;
  }
  *mean = m;
  return m2 > 0 ? m2 : m2 != m2 ? m2 : 0;
}

// Sets *s to the sum of g and *sx to that of g*(x - mean), where g = dy*w, or dy if w is NULL.
PLAIT_INLINE void FN(grad_sums)(const T *x, const T *dy, const ACC *w, int64_t n, ACC mean, double *s, double *sx) {
  double total = 0, totalx = 0;
  for (int64_t b = 0; b < n; b += SUM_BLOCK) {
    int64_t end = min64(n, b + SUM_BLOCK), i = b;
    ACC u[PLAIT_LANES] = {0}, v[PLAIT_LANES] = {0};
    if (w) {
      for (; i + PLAIT_LANES <= end; i += PLAIT_LANES) {
#pragma omp simd
        for (int l = 0; l < PLAIT_LANES; l++) {
          ACC g = LOAD(dy[i + l]) * w[i + l];
          u[l] += g;
          v[l] += g * (LOAD(x[i + l]) - mean);
        }
      }
#pragma omp simd
      for (int64_t l = 0; l < end - i; l++) {
        ACC g = LOAD(dy[i + l]) * w[i + l];
        u[l] += g;
        v[l] += g * (LOAD(x[i + l]) - mean);
      }
    } else {
      for (; i + PLAIT_LANES <= end; i += PLAIT_LANES) {
#pragma omp simd
        for (int l = 0; l < PLAIT_LANES; l++) {
          ACC g = LOAD(dy[i + l]);
          u[l] += g;
          v[l] += g * (LOAD(x[i + l]) - mean);
        }
      }
#pragma omp simd
      for (int64_t l = 0; l < end - i; l++) {
        ACC g = LOAD(dy[i + l]);
        u[l] += g;
        v[l] += g * (LOAD(x[i + l]) - mean);
      }
    }
    PLAIT_FOLD_LANES(u, PLAIT_PLUS)
    PLAIT_FOLD_LANES(v, PLAIT_PLUS)
    total += (double)u[0];
    totalx += (double)v[0];
  }
  *s = total;
  *sx = totalx;
}

// y = (x - mean)*scale + shift
PLAIT_INLINE void FN(affine)(const T *x, T *y, int64_t n, ACC mean, ACC scale, ACC shift) {
#pragma omp simd
  for (int64_t i = 0; i < n; i++) y[i] = STORE((LOAD(x[i]) - mean) * scale + shift);
}

// dx = a*dy + b*(x - mean) + c
PLAIT_INLINE void FN(grad_affine)(const T *x, const T *dy, T *dx, int64_t n, ACC mean, ACC a, ACC b, ACC c) {
#pragma omp simd
  for (int64_t i = 0; i < n; i++) dx[i] = STORE(a * LOAD(dy[i]) + b * (LOAD(x[i]) - mean) + c);
}

#endif
