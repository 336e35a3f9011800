// Cross entropy of blocks of samples. A block is up to COLUMN_BLOCK adjacent samples of one batch index: `w` columns of
// a [classes, inner] array. With inner == 1 the classes of a sample are contiguous and lanes are classes; otherwise
// lanes are samples. See plait_each_float.h for the macros.
#ifdef FN

// Sets *lse, and *plain and *weighted to the sums of x and weight*x, for one sample of contiguous classes. It is an
// online log-sum-exp over blocks.
PLAIT_INLINE void FN(row_sums)(const T *x, const ACC *weight, const T *probs, int64_t n, double keep, double even,
                               bool smooth, double *lse, double *mass, double *score) {
  ACC m = -ACC_INFINITY;
  double total = 0, a = 0, b = 0;
  for (int64_t at = 0; at < n; at += SUM_BLOCK) {
    int64_t len = plait_min64(n - at, SUM_BLOCK), h = len / 2;
    const T *xb = x + at, *xh = xb + h;
    ACC m0 = m, m1 = LOAD(xb[len - 1]) > m ? LOAD(xb[len - 1]) : m;
#pragma omp simd reduction(max : m0, m1)
    for (int64_t i = 0; i < h; i++) {
      ACC u = LOAD(xb[i]), v = LOAD(xh[i]);
      m0 = u > m0 ? u : m0;
      m1 = v > m1 ? v : m1;
    }
    ACC before = m;
    m = m0 > m1 ? m0 : m1;
    ACC safe = m == -ACC_INFINITY ? 0 : m, s = 0;
#pragma omp simd reduction(+ : s)
    for (int64_t i = 0; i < len; i++) s += EXP(LOAD(xb[i]) - safe);
    total = (at > 0 ? total * exp((double)before - (double)safe) : 0) + (double)s;
    if (probs) {
      // mass and score are the sums of weight*target and weight*target*x.
      ACC ps = 0, pxs = 0, k = (ACC)keep, e = (ACC)even;
      const T *pb = probs + at;
      if (weight) {
        const ACC *wb = weight + at;
#pragma omp simd reduction(+ : ps, pxs)
        for (int64_t i = 0; i < len; i++) {
          ACC t = wb[i] * (LOAD(pb[i]) * k + e);
          ps += t;
          pxs += t * LOAD(xb[i]);
        }
      } else {
#pragma omp simd reduction(+ : ps, pxs)
        for (int64_t i = 0; i < len; i++) {
          ACC t = LOAD(pb[i]) * k + e;
          ps += t;
          pxs += t * LOAD(xb[i]);
        }
      }
      a += (double)ps;
      b += (double)pxs;
    } else if (smooth) {
      ACC xs = 0;
      if (weight) {
        const ACC *wb = weight + at;
#pragma omp simd reduction(+ : xs)
        for (int64_t i = 0; i < len; i++) xs += wb[i] * LOAD(xb[i]);
      } else {
#pragma omp simd reduction(+ : xs)
        for (int64_t i = 0; i < len; i++) xs += LOAD(xb[i]);
      }
      b += (double)xs;
    }
  }
  *lse = (double)m + log(total);
  *mass = a;
  *score = b;
}

// The same for w adjacent samples whose classes are `stride` apart.
PLAIT_INLINE void FN(column_sums)(const T *x, const ACC *weight, const T *probs, int64_t n, int64_t w, int64_t stride,
                                  double keep, double even, bool smooth, double *lse, double *mass, double *score) {
  ACC m[COLUMN_BLOCK], safe[COLUMN_BLOCK], s[COLUMN_BLOCK], ps[COLUMN_BLOCK], pxs[COLUMN_BLOCK];
  for (int64_t j = 0; j < w; j++) {
    m[j] = -ACC_INFINITY;
    lse[j] = mass[j] = score[j] = 0;
  }
  for (int64_t at = 0; at < n; at += SUM_ROWS) {
    int64_t end = plait_min64(n, at + SUM_ROWS);
    for (int64_t j = 0; j < w; j++) s[j] = m[j];
    for (int64_t i = at; i < end; i++) {
      const T *xi = x + i * stride;
#pragma omp simd
      for (int64_t j = 0; j < w; j++) {
        ACC v = LOAD(xi[j]);
        m[j] = v > m[j] ? v : m[j];
      }
    }
    for (int64_t j = 0; j < w; j++) {
      safe[j] = m[j] == -ACC_INFINITY ? 0 : m[j];
      if (at > 0) lse[j] *= exp((double)s[j] - (double)safe[j]);
      s[j] = ps[j] = pxs[j] = 0;
    }
    for (int64_t i = at; i < end; i++) {
      const T *xi = x + i * stride;
#pragma omp simd
      for (int64_t j = 0; j < w; j++) s[j] += EXP(LOAD(xi[j]) - safe[j]);
      ACC wi = weight ? weight[i] : 1;
      if (probs) {
        const T *pi = probs + i * stride;
        ACC k = (ACC)keep, e = (ACC)even;
#pragma omp simd
        for (int64_t j = 0; j < w; j++) {
          ACC t = wi * (LOAD(pi[j]) * k + e);
          ps[j] += t;
          pxs[j] += t * LOAD(xi[j]);
        }
      } else if (smooth) {
#pragma omp simd
        for (int64_t j = 0; j < w; j++) pxs[j] += wi * LOAD(xi[j]);
      }
    }
    for (int64_t j = 0; j < w; j++) {
      lse[j] += (double)s[j];
      mass[j] += (double)ps[j];
      score[j] += (double)pxs[j];
    }
  }
#pragma omp simd
  for (int64_t j = 0; j < w; j++) lse[j] = (double)m[j] + plait_vm_log(lse[j]);
}

// Writes the loss of a sample, whose classes are `stride` apart, and its share.
PLAIT_INLINE void FN(entropy_sample)(struct job *j, int64_t sample, const T *x, int64_t stride, bool probs, double lse,
                                     double mass, double score) {
  const struct plaitk_loss *p = j->p;
  const ACC *weight = j->weight;
  double loss = 0, share = 1, keep = 1 - p->smoothing, even = p->smoothing / (double)p->classes;
  if (j->lse) ((ACC *)j->lse)[sample] = (ACC)lse;
  if (probs) {
    loss = lse * mass - score;
  } else {
    int64_t y = p->target[sample];
    share = 0;
    if (target_is_class(j, sample, y)) {
      share = weight ? (double)weight[y] : 1;
      loss = keep * share * (lse - (double)LOAD(x[y * stride]));
      if (p->smoothing > 0) loss += even * (lse * j->weight_sum - score);
    }
  }
  j->losses[sample] = loss;
  j->shares[sample] = share;
}

// Samples of few classes, which are contiguous: ROWS at a time become columns, so that vectors are full. Only `count` of them are wanted.
PLAIT_CLONES static void FN(entropy_rows)(struct job *j, int64_t sample, int64_t count) {
  const struct plaitk_loss *p = j->p;
  int64_t n = p->classes;
  const T *x = (const T *)p->x + sample * n;
  T turned[FEW_CLASSES * ROWS];
  double lse[ROWS], mass[ROWS], score[ROWS];
  for (int64_t r = 0; r < ROWS; r++) {
    const T *row = x + (r < count ? r : count - 1) * n;
    for (int64_t i = 0; i < n; i++) turned[i * ROWS + r] = row[i];
  }
  FN(column_sums)(turned, j->weight, NULL, n, ROWS, ROWS, 0, 0, p->smoothing > 0, lse, mass, score);
  for (int64_t r = 0; r < count; r++) FN(entropy_sample)(j, sample + r, x + r * n, 1, false, lse[r], mass[r], score[r]);
}

PLAIT_CLONES static void FN(entropy_block)(struct job *j, int64_t batch, int64_t column, int64_t w) {
  const struct plaitk_loss *p = j->p;
  int64_t n = p->classes, base = batch * n * p->inner + column, sample = batch * p->inner + column;
  const T *x = (const T *)p->x + base, *probs = p->probs ? (const T *)p->probs + base : NULL;
  const ACC *weight = j->weight;
  double lse[COLUMN_BLOCK], mass[COLUMN_BLOCK], score[COLUMN_BLOCK];
  double keep = 1 - p->smoothing, even = p->smoothing / (double)n;
  bool smooth = p->smoothing > 0;
  if (p->inner == 1) {
    FN(row_sums)(x, weight, probs, n, keep, even, smooth, lse, mass, score);
  } else {
    FN(column_sums)(x, weight, probs, n, w, p->inner, keep, even, smooth, lse, mass, score);
  }
  for (int64_t i = 0; i < w; i++) {
    FN(entropy_sample)(j, sample + i, x + i, p->inner, probs != NULL, lse[i], mass[i], score[i]);
  }
}

// Let p = exp(x - lse), t the target distribution, a the sum of weight*t, and g the gradient of the sample's loss. Then
// dx = g*(p*a - weight*t), and dt = -g*weight*(x - lse), times 1 - label smoothing.
PLAIT_CLONES static void FN(entropy_block_grad)(struct job *j, int64_t batch, int64_t column, int64_t w) {
  const struct plaitk_loss *p = j->p;
  int64_t n = p->classes, stride = p->inner, base = batch * n * stride + column, sample = batch * stride + column;
  const T *x = (const T *)p->x + base, *probs = p->probs ? (const T *)p->probs + base : NULL;
  T *dx = j->dx ? (T *)j->dx + base : NULL, *dprobs = j->dprobs ? (T *)j->dprobs + base : NULL;
  const ACC *weight = j->weight, *lse = (const ACC *)j->lse + sample;
  double keep = 1 - p->smoothing, even = p->smoothing / (double)n;
  ACC g[COLUMN_BLOCK], a[COLUMN_BLOCK], k = (ACC)keep, e = (ACC)even;
  for (int64_t i = 0; i < w; i++) {
    double gi = loss_grad(j, sample + i), share;
    if (probs) {
      share = 0;  // set below
    } else {
      int64_t y = p->target[sample + i];
      bool counts = y != p->ignore_index && y >= 0 && y < n;
      gi = counts ? gi : 0;
      share = counts ? keep * (weight ? (double)weight[y] : 1) + even * j->weight_sum : 0;
    }
    g[i] = (ACC)gi;
    a[i] = (ACC)(gi * share);
  }
  if (stride == 1) {
    ACC g0 = g[0], l0 = lse[0];
    if (probs && dx) {
      double mass, score, unused;
      FN(row_sums)(x, weight, probs, n, keep, even, false, &unused, &mass, &score);
      a[0] = (ACC)((double)g0 * mass);
    }
    ACC a0 = a[0], ge = g0 * e;
    if (dx && probs) {
#pragma omp simd
      for (int64_t c = 0; c < n; c++) {
        ACC wc = weight ? weight[c] : 1;
        dx[c] = STORE(EXP(LOAD(x[c]) - l0) * a0 - g0 * wc * (LOAD(probs[c]) * k + e));
      }
    } else if (dx && g0 == 0) {
      memset(dx, 0, (size_t)n * sizeof(T));
    } else if (dx && ge == 0) {
#pragma omp simd
      for (int64_t c = 0; c < n; c++) dx[c] = STORE(EXP(LOAD(x[c]) - l0) * a0);
    } else if (dx) {
#pragma omp simd
      for (int64_t c = 0; c < n; c++) {
        ACC wc = weight ? weight[c] : 1;
        dx[c] = STORE(EXP(LOAD(x[c]) - l0) * a0 - ge * wc);
      }
    }
    if (dprobs) {
#pragma omp simd
      for (int64_t c = 0; c < n; c++) {
        ACC wc = weight ? weight[c] : 1;
        dprobs[c] = STORE(-g0 * k * wc * (LOAD(x[c]) - l0));
      }
    }
  } else {
    if (probs && dx) {
      double mass[COLUMN_BLOCK], score[COLUMN_BLOCK], unused[COLUMN_BLOCK];
      FN(column_sums)(x, weight, probs, n, w, stride, keep, even, false, unused, mass, score);
      for (int64_t i = 0; i < w; i++) a[i] = (ACC)((double)g[i] * mass[i]);
    }
    for (int64_t c = 0; c < n; c++) {
      const T *xc = x + c * stride;
      ACC wc = weight ? weight[c] : 1, we = wc * e, wk = wc * k;
      if (dx && probs) {
        T *dc = dx + c * stride;
        const T *pc = probs + c * stride;
#pragma omp simd
        for (int64_t i = 0; i < w; i++)
          dc[i] = STORE(EXP(LOAD(xc[i]) - lse[i]) * a[i] - g[i] * (LOAD(pc[i]) * wk + we));
      } else if (dx) {
        T *dc = dx + c * stride;
#pragma omp simd
        for (int64_t i = 0; i < w; i++) dc[i] = STORE(EXP(LOAD(xc[i]) - lse[i]) * a[i] - g[i] * we);
      }
      if (dprobs) {
        T *dc = dprobs + c * stride;
#pragma omp simd
        for (int64_t i = 0; i < w; i++) dc[i] = STORE(-g[i] * wk * (LOAD(xc[i]) - lse[i]));
      }
    }
  }
  if (!dx || probs) return;
  for (int64_t i = 0; i < w; i++) {
    int64_t y = p->target[sample + i];
    if (y == p->ignore_index || y < 0 || y >= n) {
      // An ignored sample has no gradient, even if its scores are infinite or NaN.
      for (int64_t c = 0; c < n; c++) dx[c * stride + i] = 0;
      continue;
    }
    ACC wy = weight ? weight[y] : 1;
    ACC q = EXP(LOAD(x[y * stride + i]) - lse[i]) * a[i] - g[i] * e * wy - g[i] * k * wy;
    dx[y * stride + i] = STORE(q);
  }
}

static void FN(nll_samples)(struct job *j, int64_t first, int64_t last) {
  const struct plaitk_loss *p = j->p;
  int64_t inner = p->inner, column = first % inner;
  const T *x = (const T *)p->x + first / inner * p->classes * inner;
  const ACC *weight = j->weight;
  const int64_t *target = p->target;
  double *losses = j->losses, *shares = j->shares;
  for (int64_t i = first; i < last; i++) {
    int64_t y = target[i];
    double loss = 0, share = 0;
    if (target_is_class(j, i, y)) {
      share = weight ? (double)weight[y] : 1;
      loss = -share * (double)LOAD(x[y * inner + column]);
    }
    losses[i] = loss;
    shares[i] = share;
    if (++column == inner) column = 0, x += p->classes * inner;
  }
}

static void FN(nll_block_grad)(struct job *j, int64_t batch, int64_t column, int64_t w) {
  const struct plaitk_loss *p = j->p;
  int64_t base = batch * p->classes * p->inner + column, sample = batch * p->inner + column;
  T *dx = (T *)j->dx + base;
  for (int64_t c = 0; c < p->classes; c++) memset(dx + c * p->inner, 0, (size_t)w * sizeof(T));
  for (int64_t i = 0; i < w; i++) {
    int64_t y = p->target[sample + i];
    if (y == p->ignore_index || y < 0 || y >= p->classes) continue;
    double wy = j->weight ? (double)((const ACC *)j->weight)[y] : 1;
    dx[y * p->inner + i] = STORE((ACC)(-loss_grad(j, sample + i) * wy));
  }
}

#endif
