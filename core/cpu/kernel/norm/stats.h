// Sums over contiguous rows. See plait_each_float.h for the macros.
#ifdef FN

// The quarters of a block have accumulators of their own, so that additions do not wait for one another.
PLAIT_INLINE double FN(sum)(const T *x, int64_t n) {
  double total = 0;
  for (int64_t b = 0; b < n; b += SUM_BLOCK) {
    int64_t len = min64(n - b, SUM_BLOCK), q = len / 4;
    const T *x0 = x + b, *x1 = x0 + q, *x2 = x1 + q, *x3 = x2 + q;
    ACC s0 = 0, s1 = 0, s2 = 0, s3 = 0;
#pragma omp simd reduction(+ : s0, s1, s2, s3)
    for (int64_t i = 0; i < q; i++) {
      s0 += LOAD(x0[i]);
      s1 += LOAD(x1[i]);
      s2 += LOAD(x2[i]);
      s3 += LOAD(x3[i]);
    }
    for (int64_t i = 4 * q; i < len; i++) s3 += LOAD(x0[i]);
    total += (double)((s0 + s1) + (s2 + s3));
  }
  return total;
}

// Returns the sum of (x - mean)^2.
PLAIT_INLINE double FN(sum_squares)(const T *x, int64_t n, ACC mean) {
  double total = 0;
  for (int64_t b = 0; b < n; b += SUM_BLOCK) {
    int64_t len = min64(n - b, SUM_BLOCK), q = len / 4;
    const T *x0 = x + b, *x1 = x0 + q, *x2 = x1 + q, *x3 = x2 + q;
    ACC s0 = 0, s1 = 0, s2 = 0, s3 = 0;
#pragma omp simd reduction(+ : s0, s1, s2, s3)
    for (int64_t i = 0; i < q; i++) {
      ACC d0 = LOAD(x0[i]) - mean, d1 = LOAD(x1[i]) - mean, d2 = LOAD(x2[i]) - mean, d3 = LOAD(x3[i]) - mean;
      s0 += d0 * d0;
      s1 += d1 * d1;
      s2 += d2 * d2;
      s3 += d3 * d3;
    }
    for (int64_t i = 4 * q; i < len; i++) {
      ACC d = LOAD(x0[i]) - mean;
      s3 += d * d;
    }
    total += (double)((s0 + s1) + (s2 + s3));
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
  double t = 0, tx = 0;
  for (int64_t b = 0; b < n; b += SUM_BLOCK) {
    int64_t len = min64(n - b, SUM_BLOCK), h = len / 2;
    const T *x0 = x + b, *x1 = x0 + h, *g0 = dy + b, *g1 = g0 + h;
    ACC u0 = 0, v0 = 0, u1 = 0, v1 = 0;
    if (w) {
      const ACC *w0 = w + b, *w1 = w0 + h;
#pragma omp simd reduction(+ : u0, v0, u1, v1)
      for (int64_t i = 0; i < h; i++) {
        ACC a = LOAD(g0[i]) * w0[i], c = LOAD(g1[i]) * w1[i];
        u0 += a;
        v0 += a * (LOAD(x0[i]) - mean);
        u1 += c;
        v1 += c * (LOAD(x1[i]) - mean);
      }
    } else {
#pragma omp simd reduction(+ : u0, v0, u1, v1)
      for (int64_t i = 0; i < h; i++) {
        ACC a = LOAD(g0[i]), c = LOAD(g1[i]);
        u0 += a;
        v0 += a * (LOAD(x0[i]) - mean);
        u1 += c;
        v1 += c * (LOAD(x1[i]) - mean);
      }
    }
    if (len > 2 * h) {
      ACC a = LOAD(g0[len - 1]);
      if (w) a *= w[b + len - 1];
      u1 += a;
      v1 += a * (LOAD(x0[len - 1]) - mean);
    }
    t += (double)(u0 + u1);
    tx += (double)(v0 + v1);
  }
  *s = t;
  *sx = tx;
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
