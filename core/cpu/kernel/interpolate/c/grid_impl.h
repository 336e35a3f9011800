// Places in a grid, of float32 and float64: see grid.c.

// Moves a position along a dimension to where the padding has its element from.
PLAIT_INLINE T FN(padded)(const struct plaitk_grid *g, T p, T size) {
  T low = g->align_corners ? 0 : (T)-0.5, span = g->align_corners ? size - 1 : size;
  if (g->padding == GRID_REFLECTION) {
    T around = span == 0 ? 0 : p - low - FLOOR((p - low) / (2 * span)) * (2 * span);
    p = span == 0 ? p * 0 : span - ABS(around - span) + low;
  }
  if (g->padding != GRID_ZEROS) {
    p = p < 0 ? 0 : p;
    p = p > size - 1 ? size - 1 : p;
  }
  return p;
}

// The number of neighbours along a dimension.
PLAIT_INLINE int FN(taps)(int64_t mode) { return mode == INTERPOLATE_NEAREST ? 1 : mode == INTERPOLATE_LINEAR ? 2 : 4; }

// Finds the neighbours of n positions along dimension d: their indices, -1 outside, and shares.
PLAIT_INLINE void FN(neighbours)(const struct plaitk_grid *g, int64_t mode, const T *restrict grid, int64_t n, int64_t d,
                                 int32_t index[restrict][POINTS], T share[restrict][POINTS]) {
  T size = (T)g->in[d], scale = (g->align_corners ? size - 1 : size) / 2, shift = g->align_corners ? 0 : (T)0.5;
  T at[POINTS];
  int64_t dims = g->dims;
  for (int64_t i = 0; i < n; i++) at[i] = (grid[i * dims + d] + 1) * scale - shift;
  if (mode != INTERPOLATE_CUBIC) {
    _Pragma("omp simd") for (int64_t i = 0; i < n; i++) at[i] = FN(padded)(g, at[i], size);
  }
  for (int k = 0; k < FN(taps)(mode); k++) {
    int32_t *restrict to = index[k];
    T *restrict s = share[k];
    _Pragma("omp simd") for (int64_t i = 0; i < n; i++) {
      T low = FLOOR(at[i]), t = at[i] - low, p;
      if (mode == INTERPOLATE_NEAREST) {
        p = ROUND(at[i]), s[i] = 1;
      } else if (mode == INTERPOLATE_LINEAR) {
        p = low + (T)k, s[i] = k == 0 ? 1 - t : t;
      } else { // Keys' kernel, of distances below 1 and from 1 to 2
        const T a = (T)-0.75;
        T near = k == 1 ? t : 1 - t, far = k == 0 ? t + 1 : 2 - t;
        p = FN(padded)(g, low + (T)(k - 1), size);
        s[i] = k == 1 || k == 2 ? ((a + 2) * near - (a + 3)) * near * near + 1 : ((a * far - 5 * a) * far + 8 * a) * far - 4 * a;
      }
      bool inside = p >= 0 && p <= size - 1;
      int32_t whole = (int32_t)(inside ? p : 0);
      to[i] = inside ? whole : -1;
    }
  }
}

// Sums the neighbours of n points, of packed channels in N vectors each.
#define SUMS(NAME, BYTES, N)                                                                                        \
  PLAIT_INLINE void FN(NAME)(const T *restrict x, int64_t taps, int32_t index[restrict][POINTS],                    \
                             T weight[restrict][POINTS], int64_t n, T *restrict y) {                                \
    typedef T vector __attribute__((vector_size(BYTES), aligned(sizeof(T)), may_alias));                            \
    static const vector zeros[N] = {0};                                                                             \
    for (int64_t i = 0; i < n; i++) {                                                                               \
      vector sum[N] = {0};                                                                                          \
      for (int64_t k = 0; k < taps; k++) {                                                                          \
        int64_t at = index[k][i];                                                                                   \
        const vector *from = at < 0 ? zeros : (const vector *)x + at * N;                                           \
        for (int v = 0; v < N; v++) sum[v] += weight[k][i] * from[v];                                               \
      }                                                                                                             \
      for (int v = 0; v < N; v++) ((vector *)y)[i * N + v] = sum[v];                                                \
    }                                                                                                               \
  }
SUMS(wide_sums, 32, WIDE * (int)sizeof(T) / 32)
SUMS(narrow_sums, 16, NARROW * (int)sizeof(T) / 16)
#undef SUMS

// Does so for channels that are `step` elements apart.
PLAIT_INLINE void FN(apart_sums)(const T *restrict x, int64_t step, int64_t channels, int64_t taps, int32_t index[restrict][POINTS],
                                 T weight[restrict][POINTS], int64_t n, T *restrict y, int64_t lanes) {
  for (int64_t i = 0; i < n; i++) {
    for (int64_t c = 0; c < channels; c++) {
      T sum = 0;
      for (int64_t k = 0; k < taps; k++) sum += weight[k][i] * (index[k][i] < 0 ? 0 : x[c * step + index[k][i]]);
      y[i * lanes + c] = sum;
    }
  }
}

// Copies n rows of `lanes` elements to `channels` columns that are `step` elements apart, or the other way with `pack`, where channels that
// do not exist are zeros.
PLAIT_INLINE void FN(turn)(T *restrict rows, int64_t lanes, T *restrict columns, int64_t step, int64_t channels, int64_t n, bool pack) {
  int64_t size = (int64_t)sizeof(T), whole = n / BLOCK * BLOCK;
  for (int64_t c = 0; c < lanes; c += BLOCK) {
    int64_t from = c + BLOCK <= channels ? whole : 0;
    for (int64_t i = 0; i < from; i += BLOCK) {
      char *row = (char *)(rows + i * lanes + c), *column = (char *)(columns + c * step + i);
      if (pack) {
        TRANSPOSE(row, lanes * size, column, step * size);
      } else {
        TRANSPOSE(column, step * size, row, lanes * size);
      }
    }
    for (int64_t b = c; b < c + BLOCK; b++) {
      for (int64_t i = from; i < n; i++) {
        if (pack) {
          rows[i * lanes + b] = b < channels ? columns[b * step + i] : 0;
        } else if (b < channels) {
          columns[b * step + i] = rows[i * lanes + b];
        }
      }
    }
  }
}

static void FN(pack)(const struct job *j, int64_t chunk) {
  const struct plaitk_grid *g = j->g;
  int64_t chunks = plait_ceil_div(j->plane, POSITIONS), group = chunk / chunks % j->groups, s = chunk / chunks / j->groups;
  int64_t first = chunk % chunks * POSITIONS, c = group * j->lanes;
  T *x = (T *)g->x + (s * g->channels + c) * j->plane + first;
  FN(turn)((T *)j->packed + ((s * j->groups + group) * j->plane + first) * j->lanes, j->lanes, x, j->plane,
           plait_min64(j->lanes, g->channels - c), plait_min64(POSITIONS, j->plane - first), true);
}

PLAIT_CLONES static void FN(sample)(const struct job *j, int64_t chunk) {
  const struct plaitk_grid *g = j->g;
  int64_t chunks = plait_ceil_div(g->points, POINTS), s = chunk / chunks, first = chunk % chunks * POINTS;
  int64_t n = plait_min64(POINTS, g->points - first), plane = 1, taps = 1;
  const T *grid = (const T *)g->grid + (s * g->points + first) * g->dims;
  int32_t index[TAPS][POINTS], own[4][POINTS];
  T weight[TAPS][POINTS], share[4][POINTS], rows[POINTS * WIDE];
  for (int64_t d = 0; d < g->dims; d++) {
    int32_t (*at)[POINTS] = d == 0 ? index : own;
    T (*part)[POINTS] = d == 0 ? weight : share;
    if (g->mode == INTERPOLATE_NEAREST) {
      FN(neighbours)(g, INTERPOLATE_NEAREST, grid, n, d, at, part);
    } else if (g->mode == INTERPOLATE_LINEAR) {
      FN(neighbours)(g, INTERPOLATE_LINEAR, grid, n, d, at, part);
    } else {
      FN(neighbours)(g, INTERPOLATE_CUBIC, grid, n, d, at, part);
    }
    int64_t more = FN(taps)(g->mode);
    for (int64_t k = more - 1; d > 0 && k >= 0; k--) { // the first block is replaced last
      for (int64_t q = 0; q < taps; q++) {
        int32_t *to = index[k * taps + q];
        T *w = weight[k * taps + q];
        _Pragma("omp simd") for (int64_t i = 0; i < n; i++) {
          int32_t a = index[q][i], b = own[k][i];
          to[i] = (a | b) < 0 ? -1 : b * (int32_t)plane + a;
          w[i] = weight[q][i] * share[k][i];
        }
      }
    }
    taps *= more, plane *= g->in[d];
  }
  for (int64_t group = 0; group < j->groups; group++) {
    int64_t c = group * j->lanes, channels = plait_min64(j->lanes, g->channels - c);
    const T *x = j->packed ? (const T *)j->packed + (s * j->groups + group) * plane * j->lanes : (const T *)g->x + (s * g->channels + c) * plane;
    if (!j->packed) {
      FN(apart_sums)(x, plane, channels, taps, index, weight, n, rows, j->lanes);
    } else if (j->lanes == WIDE) {
      FN(wide_sums)(x, taps, index, weight, n, rows);
    } else {
      FN(narrow_sums)(x, taps, index, weight, n, rows);
    }
    FN(turn)(rows, j->lanes, (T *)g->y + (s * g->channels + c) * g->points + first, g->points, channels, n, false);
  }
}
#undef T
#undef FLOOR
#undef ROUND
#undef ABS
#undef BLOCK
#undef TRANSPOSE
#undef FN
