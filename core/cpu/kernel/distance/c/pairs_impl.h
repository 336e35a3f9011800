// Pairs of rows, for every floating dtype: see plait_each_float.h. LANES accumulators are 64 bytes.
#define LANES ((int)(64 / sizeof(ACC)))
enum { FN(lanes) = LANES };

// Joins the terms of a tile: differences of TILE rows of x and LANES rows of z in a block of features, onto the sums of earlier blocks.
// Rows of x are `step` elements apart.
#define TERMS(NAME, JOIN, ONTO)                                                                                      \
  PLAIT_INLINE void FN(NAME)(const T *restrict x, int64_t step, const ACC *restrict z, int64_t m, ACC p,             \
                             ACC *restrict sums) {                                                                   \
    ACC a[LANES] = {0}, b[LANES] = {0}, c[LANES] = {0}, d[LANES] = {0};                                              \
    for (int64_t e = 0; e < m; e++) {                                                                                \
      ACC xa = LOAD(x[e]), xb = LOAD(x[step + e]), xc = LOAD(x[2 * step + e]), xd = LOAD(x[3 * step + e]);           \
      const ACC *restrict v = z + e * LANES;                                                                         \
      _Pragma("omp simd") for (int l = 0; l < LANES; l++) a[l] = JOIN(a[l], xa - v[l]);                              \
      _Pragma("omp simd") for (int l = 0; l < LANES; l++) b[l] = JOIN(b[l], xb - v[l]);                              \
      _Pragma("omp simd") for (int l = 0; l < LANES; l++) c[l] = JOIN(c[l], xc - v[l]);                              \
      _Pragma("omp simd") for (int l = 0; l < LANES; l++) d[l] = JOIN(d[l], xd - v[l]);                              \
    }                                                                                                                \
    (void)p;                                                                                                         \
    _Pragma("omp simd") for (int l = 0; l < LANES; l++) sums[l] = ONTO(sums[l], a[l]);                               \
    _Pragma("omp simd") for (int l = 0; l < LANES; l++) sums[LANES + l] = ONTO(sums[LANES + l], b[l]);               \
    _Pragma("omp simd") for (int l = 0; l < LANES; l++) sums[2 * LANES + l] = ONTO(sums[2 * LANES + l], c[l]);       \
    _Pragma("omp simd") for (int l = 0; l < LANES; l++) sums[3 * LANES + l] = ONTO(sums[3 * LANES + l], d[l]);       \
  }
#define PLUS(s, d) ((s) + (d))
#define COUNT(s, d) ((s) + ((d) == (d) ? (ACC)((d) != 0) : (d))) // NaN is no number of elements
#define SIZE(d) ((ACC)(sizeof(ACC) == 4 ? fabsf((float)(d)) : fabs((double)(d))))
#define ABS(s, d) ((s) + SIZE(d))
#define SQUARE(s, d) ((s) + (d) * (d))
#define POWER(s, d) ((s) + (ACC)(sizeof(ACC) == 4 ? powf((float)SIZE(d), (float)p) : pow((double)SIZE(d), (double)p)))
#define LARGER(s, v) ((s) > (v) || (s) != (s) ? (s) : (v)) // NaN is the largest
#define LARGEST(s, d) LARGER(s, SIZE(d))
#define COUNTED(s, d) (SIZE(d) > (s) ? SIZE(d) : (s)) // NaN does not count
TERMS(zeroth, COUNT, PLUS)
TERMS(first, ABS, PLUS)
TERMS(second, SQUARE, PLUS)
TERMS(other, POWER, PLUS)
TERMS(largest, LARGEST, LARGER)
TERMS(largest_counted, COUNTED, LARGER)
#undef TERMS
#undef PLUS
#undef COUNT
#undef ABS
#undef SIZE
#undef SQUARE
#undef POWER
#undef LARGEST
#undef COUNTED
#undef LARGER

PLAIT_INLINE ACC FN(root)(ACC sum, double p) {
  if (p == 2) return (ACC)(sizeof(ACC) == 4 ? sqrtf((float)sum) : sqrt((double)sum));
  if (p == 0 || p == 1 || isinf(p)) return sum;
  return (ACC)(sizeof(ACC) == 4 ? powf((float)sum, (float)(1 / p)) : pow((double)sum, 1 / p));
}

PLAIT_CLONES static void FN(pairs)(const struct job *j, int64_t chunk) {
  const struct plaitk_pairs *s = j->p;
  int64_t n = s->n, k = s->k, m = s->m;
  int64_t block = chunk % j->blocks, panel = chunk / j->blocks % j->panels, batch = chunk / j->blocks / j->panels;
  int64_t row = block * ROWS, rows = plait_min64(ROWS, n - row), column = panel * LANES, columns = plait_min64(LANES, k - column);
  if (s->triangle && column + columns - 1 <= row) return;
  const T *x = (const T *)s->x + (batch * n + row) * m, *z = (const T *)s->z + (batch * k + column) * m;
  ACC sums[ROWS * LANES] = {0}, turned[BLOCK * LANES] = {0};
  for (int64_t from = 0; from < m; from += BLOCK) {
    int64_t width = plait_min64(BLOCK, m - from);
    for (int64_t l = 0; l < columns; l++) {
      for (int64_t e = 0; e < width; e++) turned[e * LANES + l] = LOAD(z[l * m + from + e]);
    }
    for (int64_t r = 0; r < rows; r += TILE) {
      const T *at = x + r * m + from;
      T few[TILE * BLOCK] = {0}; // the last rows
      int64_t step = m;
      if (r + TILE > rows) {
        for (int64_t i = r; i < rows; i++) memcpy(few + (i - r) * BLOCK, x + i * m + from, (size_t)width * sizeof(T));
        at = few, step = BLOCK;
      }
      ACC *to = sums + r * LANES;
      if (s->p == 2) {
        FN(second)(at, step, turned, width, (ACC)s->p, to);
      } else if (s->p == 1) {
        FN(first)(at, step, turned, width, (ACC)s->p, to);
      } else if (s->p == 0) {
        FN(zeroth)(at, step, turned, width, (ACC)s->p, to);
      } else if (isinf(s->p) && !s->triangle) {
        FN(largest_counted)(at, step, turned, width, (ACC)s->p, to);
      } else if (isinf(s->p)) {
        FN(largest)(at, step, turned, width, (ACC)s->p, to);
      } else {
        FN(other)(at, step, turned, width, (ACC)s->p, to);
      }
    }
  }
  for (int64_t r = 0; r < rows; r++) {
    int64_t i = row + r, start = s->triangle ? plait_max64(0, i + 1 - column) : 0;
    T *y = (T *)s->y + (s->triangle ? batch * (n * (n - 1) / 2) + i * (2 * n - i - 3) / 2 - 1 : (batch * n + i) * k) + column;
    for (int64_t l = start; l < columns; l++) y[l] = STORE(FN(root)(sums[r * LANES + l], s->p));
  }
}
#undef LANES
