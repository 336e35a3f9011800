// Sums over contiguous rows. See plait_each_float.h for the macros.
#ifdef FN

PLAIT_INLINE double FN(sum)(const T *x, int64_t n) {
  double total = 0;
  for (int64_t b = 0; b < n; b += SUM_BLOCK) {
    int64_t end = plait_min64(n, b + SUM_BLOCK), i = b;
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

// Returns the sum of squares.
PLAIT_INLINE double FN(sum_squares)(const T *x, int64_t n) {
  double total = 0;
  if (n < PLAIT_LANES) { // a row that does not fill a vector is faster without
    for (int64_t i = 0; i < n; i++) {
      ACC d = LOAD(x[i]);
      total += (double)(d * d);
    }
    return total;
  }
  for (int64_t b = 0; b < n; b += SUM_BLOCK) {
    int64_t end = plait_min64(n, b + SUM_BLOCK), i = b;
    ACC s[PLAIT_LANES] = {0};
    for (; i + PLAIT_LANES <= end; i += PLAIT_LANES) {
#pragma omp simd
      for (int l = 0; l < PLAIT_LANES; l++) {
        ACC d = LOAD(x[i + l]);
        s[l] += d * d;
      }
    }
#pragma omp simd
    for (int64_t l = 0; l < end - i; l++) {
      ACC d = LOAD(x[i + l]);
      s[l] += d * d;
    }
    PLAIT_FOLD_LANES(s, PLAIT_PLUS)
    total += (double)s[0];
  }
  return total;
}

// Returns the sum of (x - center)^2 and sets *off to the sum of x - center, for at most STAT_BLOCK elements.
PLAIT_INLINE double FN(deviations)(const T *x, int64_t n, ACC center, double *off) {
  ACC s[PLAIT_LANES] = {0}, q[PLAIT_LANES] = {0};
  int64_t i = 0;
  for (; i + PLAIT_LANES <= n; i += PLAIT_LANES) {
#pragma omp simd
    for (int l = 0; l < PLAIT_LANES; l++) {
      ACC d = LOAD(x[i + l]) - center;
      s[l] += d;
      q[l] += d * d;
    }
  }
#pragma omp simd
  for (int64_t l = 0; l < n - i; l++) {
    ACC d = LOAD(x[i + l]) - center;
    s[l] += d;
    q[l] += d * d;
  }
  PLAIT_FOLD_LANES(s, PLAIT_PLUS)
  PLAIT_FOLD_LANES(q, PLAIT_PLUS)
  *off = (double)s[0];
  return (double)q[0];
}

// Sets *mean and returns the sum of squared deviations from it. The deviations of a block are taken from the mean of a
// few of its elements, and corrected by their own sum. The correction is small then, and the mean has more digits than
// ACC. If these few elements are not representative, the block is read again. Blocks are combined by Chan, Golub and
// LeVeque's update.
PLAIT_INLINE double FN(moments)(const T *x, int64_t n, double *mean) {
  double m = 0, m2 = 0;
  if (n > 0 && n < PLAIT_LANES) {
    double first = (double)LOAD(x[0]);
    for (int64_t i = 1; i < n; i++) m += (double)LOAD(x[i]) - first;
    m /= (double)n;
    for (int64_t i = 0; i < n; i++) {
      double d = (double)LOAD(x[i]) - first - m;
      m2 += d * d;
    }
    *mean = first + m;
    if (m2 - m2 == 0) return m2;
    m = m2 = 0; // what is not finite goes the other way
  }
  for (int64_t b = 0; b < n; b += STAT_BLOCK) {
    int64_t len = plait_min64(n - b, STAT_BLOCK);
    double few[SAMPLES], off;
    for (int64_t i = 0; i < SAMPLES; i++) few[i] = (double)LOAD(x[b + i * len / SAMPLES]);
    ACC center = (ACC)((((few[0] + few[1]) + (few[2] + few[3])) + ((few[4] + few[5]) + (few[6] + few[7]))) / SAMPLES);
    double bm2 = FN(deviations)(x + b, len, center, &off);
    if (off * off > bm2 * (double)len * FAR_SHARE) {
      center = (ACC)((double)center + off / (double)len);
      bm2 = FN(deviations)(x + b, len, center, &off);
    }
    double shift = off / (double)len, share = (double)len / (double)(b + len);
    // With an infinite center there are no deviations.
    double bm = shift == shift ? (double)center + shift : (double)center, delta = bm - m;
    m = delta - delta == 0 ? m + delta * share : m * (1 - share) + bm * share;
    m2 += bm2 - shift * off + delta * delta * (double)b * share;
  }
  *mean = m;
  return m2 > 0 ? m2 : m2 != m2 ? m2 : 0;
}

// Sets *s to the sum of g and *sx to that of g*(x - mean), where g = dy*w, or dy if w is NULL.
PLAIT_INLINE void FN(grad_sums)(const T *x, const T *dy, const ACC *w, int64_t n, ACC mean, double *s, double *sx) {
  double total = 0, totalx = 0;
  if (n < PLAIT_LANES) {
    for (int64_t i = 0; i < n; i++) {
      ACC g = LOAD(dy[i]) * (w ? w[i] : 1);
      total += (double)g;
      totalx += (double)(g * (LOAD(x[i]) - mean));
    }
    *s = total, *sx = totalx;
    return;
  }
  for (int64_t b = 0; b < n; b += SUM_BLOCK) {
    int64_t end = plait_min64(n, b + SUM_BLOCK), i = b;
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

// The part of (x - mean)*scale that is lost by rounding mean to ACC. For large numbers it matters.
PLAIT_INLINE ACC FN(mean_shift)(double mean, ACC rounded, ACC scale) {
  double rest = (double)rounded - mean;
  return rest == rest ? (ACC)(rest * (double)scale) : 0;
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
