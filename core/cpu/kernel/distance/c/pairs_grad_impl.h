// Gradients of distances of pairs of rows, for every floating dtype: see plait_each_float.h. LANES accumulators are 64 bytes.
#define LANES ((int)(64 / sizeof(ACC)))
enum { FN(grad_lanes) = LANES };

// Adds the terms of TILE features to the gradients of LANES rows: those of their differences from each of `rows` rows of z, of which row r
// has feature t of the tile at z[r * step + at[t]].
#define TERMS(NAME, TERM)                                                                                                   \
  PLAIT_INLINE void FN(NAME)(const ACC *restrict weights, const ACC *restrict norms, const ACC *restrict x,                 \
                             const T *restrict z, int64_t step, const int64_t *restrict at, int64_t rows, ACC p,            \
                             ACC *restrict sums) {                                                                          \
    ACC a[LANES] = {0}, b[LANES] = {0}, c[LANES] = {0}, d[LANES] = {0};                                                     \
    int64_t at1 = at[1], at2 = at[2], at3 = at[3];                                                                          \
    for (int64_t r = 0; r < rows; r++) {                                                                                    \
      const T *restrict v = z + r * step;                                                                                   \
      ACC za = LOAD(v[0]), zb = LOAD(v[at1]), zc = LOAD(v[at2]), zd = LOAD(v[at3]);                                         \
      const ACC *restrict w = weights + r * LANES, *restrict norm = norms + r * LANES;                                      \
      (void)norm;                                                                                                           \
      _Pragma("omp simd") for (int l = 0; l < LANES; l++) a[l] += TERM(x[l] - za, w[l], norm[l]);                           \
      _Pragma("omp simd") for (int l = 0; l < LANES; l++) b[l] += TERM(x[LANES + l] - zb, w[l], norm[l]);                   \
      _Pragma("omp simd") for (int l = 0; l < LANES; l++) c[l] += TERM(x[2 * LANES + l] - zc, w[l], norm[l]);               \
      _Pragma("omp simd") for (int l = 0; l < LANES; l++) d[l] += TERM(x[3 * LANES + l] - zd, w[l], norm[l]);               \
    }                                                                                                                       \
    (void)p;                                                                                                                \
    _Pragma("omp simd") for (int l = 0; l < LANES; l++) sums[l] += a[l];                                                    \
    _Pragma("omp simd") for (int l = 0; l < LANES; l++) sums[LANES + l] += b[l];                                            \
    _Pragma("omp simd") for (int l = 0; l < LANES; l++) sums[2 * LANES + l] += c[l];                                        \
    _Pragma("omp simd") for (int l = 0; l < LANES; l++) sums[3 * LANES + l] += d[l];                                        \
  }

PLAIT_INLINE ACC FN(size)(ACC d) { return (ACC)(sizeof(ACC) == 4 ? fabsf((float)d) : fabs((double)d)); }
PLAIT_INLINE ACC FN(power)(ACC x, ACC y) { return (ACC)(sizeof(ACC) == 4 ? plait_vm_powf((float)x, (float)y) : plait_vm_pow((double)x, (double)y)); }
PLAIT_INLINE ACC FN(signed)(ACC w, ACC d) {
  ACC above = d > 0 ? w : 0, below = d < 0 ? w : 0;
  return above - below;
}
PLAIT_INLINE ACC FN(of_sum)(ACC d, ACC w) {
  ACC term = FN(signed)(w, d);
  return d == d ? term : d;
}
// The largest differences have the whole gradient, each of them. The norm is rounded.
PLAIT_INLINE ACC FN(of_largest)(ACC d, ACC w, ACC norm) {
  ACC behind = LOAD(STORE(FN(size)(d))) - norm, term = FN(signed)(w, d);
  term = behind == 0 ? term : 0;
  return behind == behind ? term : behind;
}
PLAIT_INLINE ACC FN(of_powers)(ACC d, ACC w, ACC norm, ACC p) {
  ACC share = FN(size)(d) / norm, power = FN(power)(share, p - 1);
  ACC term = w * power, other = -term;
  term = d < 0 ? other : term;
  ACC none = norm == norm ? 0 : norm;
  return d == 0 ? none : term;
}
#define OF_SQUARES(d, w, norm) ((w) * (d))
#define OF_SUM(d, w, norm) FN(of_sum)(d, w)
#define OF_LARGEST(d, w, norm) FN(of_largest)(d, w, norm)
#define OF_POWERS(d, w, norm) FN(of_powers)(d, w, norm, p)
TERMS(squares, OF_SQUARES)
TERMS(sum, OF_SUM)
TERMS(largest, OF_LARGEST)
TERMS(powers, OF_POWERS)
#undef TERMS
#undef OF_SQUARES
#undef OF_SUM
#undef OF_LARGEST
#undef OF_POWERS

// Writes the numbers of the pairs of rows from `row` on and of rows of z from `first` on to a block [rows, LANES]. Rows behind the last one
// have 0, and so has the pair of a row and itself.
PLAIT_INLINE void FN(take)(const struct plaitk_pairs_grad *s, const struct plaitk_given *given, int64_t batch, int64_t row, int64_t first,
                           int64_t rows, ACC *restrict block) {
  int64_t n = s->n, lanes = plait_min64(LANES, n - row), across = given->strides[1], along = given->strides[2];
  const T *from = (const T *)given->data + batch * given->strides[0];
  if (lanes < LANES || s->triangle) memset(block, 0, (size_t)(rows * LANES) * sizeof(ACC));
  if (s->triangle) {
    for (int64_t l = 0; l < lanes; l++) {
      int64_t i = row + l, end = first + rows;
      for (int64_t j = first; j < plait_min64(i, end); j++)
        block[(j - first) * LANES + l] = LOAD(from[(j * (2 * n - j - 3) / 2 - 1 + i) * across]);
      const T *later = from + (i * (2 * n - i - 3) / 2 - 1) * across;
      for (int64_t j = plait_max64(i + 1, first); j < end; j++) block[(j - first) * LANES + l] = LOAD(later[j * across]);
    }
    return;
  }
  from += row * across + first * along;
  if (across == 1 && lanes == LANES) {
    for (int64_t r = 0; r < rows; r++) {
      _Pragma("omp simd") for (int l = 0; l < LANES; l++) block[r * LANES + l] = LOAD(from[r * along + l]);
    }
  } else {
    for (int64_t l = 0; l < lanes; l++) {
      for (int64_t r = 0; r < rows; r++) block[r * LANES + l] = LOAD(from[l * across + r * along]);
    }
  }
}

PLAIT_CLONES static void FN(grad)(const struct job *j, int64_t chunk) {
  const struct plaitk_pairs_grad *s = j->p;
  int64_t n = s->n, k = s->k, m = s->m;
  int64_t part = chunk % j->blocks, panel = chunk / j->blocks % j->panels, batch = chunk / j->blocks / j->panels;
  int64_t row = panel * LANES, lanes = plait_min64(LANES, n - row), feature = part * FEATURES, width = plait_min64(FEATURES, m - feature);
  const T *x = (const T *)s->x + (batch * n + row) * m + feature, *z = (const T *)s->z + batch * k * m + feature;
  ACC sums[FEATURES * LANES] = {0}, turned[FEATURES * LANES] = {0}, weights[BLOCK * LANES], norms[BLOCK * LANES];
  for (int64_t l = 0; l < lanes; l++) {
    for (int64_t e = 0; e < width; e++) turned[e * LANES + l] = LOAD(x[l * m + e]);
  }
  ACC p = (ACC)s->p;
  for (int64_t first = 0; first < k; first += BLOCK) {
    int64_t rows = plait_min64(BLOCK, k - first);
    FN(take)(s, &s->dy, batch, row, first, rows, weights);
    if (p != 1) FN(take)(s, &s->y, batch, row, first, rows, norms);
    if (p == 2) {
      _Pragma("omp simd") for (int64_t i = 0; i < rows * LANES; i++) {
        ACC share = weights[i] / norms[i];
        weights[i] = norms[i] == 0 ? 0 : share;
      }
    }
    for (int64_t e = 0; e < width; e += TILE) {
      int64_t at[TILE]; // the last tile may repeat the last feature
      for (int t = 0; t < TILE; t++) at[t] = plait_min64(t, width - 1 - e);
      const T *from = z + first * m + e;
      const ACC *own = turned + e * LANES;
      ACC *to = sums + e * LANES;
      if (p == 2) {
        FN(squares)(weights, norms, own, from, m, at, rows, p, to);
      } else if (p == 1) {
        FN(sum)(weights, norms, own, from, m, at, rows, p, to);
      } else if (isinf(s->p)) {
        FN(largest)(weights, norms, own, from, m, at, rows, p, to);
      } else {
        FN(powers)(weights, norms, own, from, m, at, rows, p, to);
      }
    }
  }
  T *dx = (T *)s->dx + (batch * n + row) * m + feature;
  for (int64_t l = 0; l < lanes; l++) {
    for (int64_t e = 0; e < width; e++) dx[l * m + e] = STORE(sums[e * LANES + l]);
  }
}
#undef LANES
