// Places in a grid, of float32 and float64: see grid.c.

// Moves a position along a dimension to where the padding has its element from. NaN becomes the first place of an image and
// the last of a volume, as in PyTorch.
PLAIT_INLINE T FN(padded)(const struct plaitk_grid *g, T p, T size) {
  T low = g->align_corners ? 0 : (T)-0.5, span = g->align_corners ? size - 1 : size;
  if (g->padding == GRID_REFLECTION) {
    T around = span == 0 ? 0 : p - low - FLOOR((p - low) / (2 * span)) * (2 * span);
    p = span == 0 ? p * 0 : span - ABS(around - span) + low;
  }
  if (g->padding != GRID_ZEROS) {
    p = p == p ? p : g->dims == 3 ? size - 1 : 0;
    p = p < 0 ? 0 : p;
    p = p > size - 1 ? size - 1 : p;
  }
  return p;
}

// The derivative of padded: 1, -1 or 0.
PLAIT_INLINE T FN(padded_slope)(const struct plaitk_grid *g, T p, T size) {
  T low = g->align_corners ? 0 : (T)-0.5, span = g->align_corners ? size - 1 : size, slope = 1;
  if (g->padding == GRID_REFLECTION) {
    T around = span == 0 ? 0 : p - low - FLOOR((p - low) / (2 * span)) * (2 * span);
    slope = around < span ? 1 : -1;
    p = span == 0 ? 0 : span - ABS(around - span) + low;
  }
  bool within = g->padding == GRID_ZEROS || (p > 0 && p < size - 1);
  return within ? slope : 0;
}

// The number of neighbours along a dimension.
PLAIT_INLINE int FN(taps)(int64_t mode) { return mode == INTERPOLATE_NEAREST ? 1 : mode == INTERPOLATE_LINEAR ? 2 : 4; }

// Finds the neighbours of n positions along dimension d: their indices, -1 outside, shares, and unless slope is NULL the derivatives of
// the shares.
PLAIT_INLINE void FN(neighbours)(const struct plaitk_grid *g, int64_t mode, const T *restrict grid, int64_t n, int64_t d,
                                 int32_t index[restrict][POINTS], T share[restrict][POINTS], T slope[restrict][POINTS]) {
  T size = (T)g->in[d], scale = (g->align_corners ? size - 1 : size) / 2, shift = g->align_corners ? 0 : (T)0.5;
  T at[POINTS], step[POINTS]; // step: the derivative of at
  int64_t dims = g->dims;
  for (int64_t i = 0; i < n; i++) at[i] = (grid[i * dims + d] + 1) * scale - shift;
  if (slope) {
    for (int64_t i = 0; i < n; i++) step[i] = mode == INTERPOLATE_CUBIC ? scale : scale * FN(padded_slope)(g, at[i], size);
  }
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
        if (slope) slope[k][i] = 0;
      } else if (mode == INTERPOLATE_LINEAR) {
        p = low + (T)k, s[i] = k == 0 ? 1 - t : t;
        if (slope) slope[k][i] = k == 0 ? -step[i] : step[i];
      } else { // Keys' kernel, of distances below 1 and from 1 to 2
        const T a = (T)-0.75;
        T near = k == 1 ? t : 1 - t, far = k == 0 ? t + 1 : 2 - t;
        p = FN(padded)(g, low + (T)(k - 1), size);
        s[i] = k == 1 || k == 2 ? ((a + 2) * near - (a + 3)) * near * near + 1 : ((a * far - 5 * a) * far + 8 * a) * far - 4 * a;
        if (slope) {
          T inner = (3 * (a + 2) * near - 2 * (a + 3)) * near, outer = (3 * a * far - 10 * a) * far + 8 * a;
          slope[k][i] = (k < 2 ? step[i] : -step[i]) * (k == 1 || k == 2 ? inner : outer);
        }
      }
      bool inside = p >= 0 && p <= size - 1;
      int32_t whole = (int32_t)(inside ? p : 0);
      to[i] = inside ? whole : -1;
      if (dims == 3) s[i] = inside ? s[i] : 0;  // in images, what is not a number stays so
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

// The elements of a group of channels of a sample: packed, or where they are.
PLAIT_INLINE const T *FN(elements)(const struct job *j, int64_t s, int64_t group) {
  const struct plaitk_grid *g = j->g;
  if (j->packed) return (const T *)j->packed + (s * j->groups + group) * j->plane * j->lanes;
  return (const T *)g->x + (s * g->channels + group * j->lanes) * j->plane;
}

static void FN(pack)(const struct job *j, int64_t chunk) {
  const struct plaitk_grid *g = j->g;
  int64_t chunks = plait_ceil_div(j->plane, POSITIONS), group = chunk / chunks % j->groups, s = chunk / chunks / j->groups;
  int64_t first = chunk % chunks * POSITIONS, c = group * j->lanes;
  T *x = (T *)g->x + (s * g->channels + c) * j->plane + first;
  FN(turn)((T *)j->packed + ((s * j->groups + group) * j->plane + first) * j->lanes, j->lanes, x, j->plane,
           plait_min64(j->lanes, g->channels - c), plait_min64(POSITIONS, j->plane - first), true);
}

// Finds the neighbours of n places and returns how many each has. index is -1 outside; weight is the product of the shares along the
// dimensions. slope may be NULL.
PLAIT_INLINE int64_t FN(find)(const struct plaitk_grid *g, const T *restrict grid, int64_t n, int32_t index[restrict][POINTS],
                              T weight[restrict][POINTS], T share[restrict][LINE][POINTS], T slope[restrict][LINE][POINTS]) {
  int64_t taps = 1, plane = 1, more = FN(taps)(g->mode);
  for (int64_t d = 0; d < g->dims; d++) {
    int32_t own[LINE][POINTS];
    int32_t (*at)[POINTS] = d == 0 ? index : own;
    T (*slopes)[POINTS] = slope ? slope[d] : NULL;
    if (g->mode == INTERPOLATE_NEAREST) {
      FN(neighbours)(g, INTERPOLATE_NEAREST, grid, n, d, at, share[d], slopes);
    } else if (g->mode == INTERPOLATE_LINEAR) {
      FN(neighbours)(g, INTERPOLATE_LINEAR, grid, n, d, at, share[d], slopes);
    } else {
      FN(neighbours)(g, INTERPOLATE_CUBIC, grid, n, d, at, share[d], slopes);
    }
    for (int64_t k = more - 1; k >= 0; k--) { // the first block is replaced last
      for (int64_t q = 0; q < taps; q++) {
        int32_t *to = index[k * taps + q];
        T *w = weight[k * taps + q];
        if (d == 0) {
          memcpy(w, share[0][k], sizeof share[0][k]);
          continue;
        }
        _Pragma("omp simd") for (int64_t i = 0; i < n; i++) {
          int32_t a = index[q][i], b = own[k][i];
          to[i] = (a | b) < 0 ? -1 : b * (int32_t)plane + a;
          w[i] = weight[q][i] * share[d][k][i];
        }
      }
    }
    taps *= more, plane *= g->in[d];
  }
  return taps;
}

PLAIT_CLONES static void FN(sample)(const struct job *j, int64_t chunk) {
  const struct plaitk_grid *g = j->g;
  int64_t chunks = plait_ceil_div(g->points, POINTS), s = chunk / chunks, first = chunk % chunks * POINTS;
  int64_t n = plait_min64(POINTS, g->points - first);
  int32_t index[TAPS][POINTS];
  T weight[TAPS][POINTS], share[DIMS][LINE][POINTS], rows[POINTS * WIDE];
  int64_t taps = FN(find)(g, (const T *)g->grid + (s * g->points + first) * g->dims, n, index, weight, share, NULL);
  for (int64_t group = 0; group < j->groups; group++) {
    int64_t c = group * j->lanes, channels = plait_min64(j->lanes, g->channels - c);
    const T *x = FN(elements)(j, s, group);
    if (!j->packed) {
      FN(apart_sums)(x, j->plane, channels, taps, index, weight, n, rows, j->lanes);
    } else if (j->lanes == WIDE) {
      FN(wide_sums)(x, taps, index, weight, n, rows);
    } else {
      FN(narrow_sums)(x, taps, index, weight, n, rows);
    }
    FN(turn)(rows, j->lanes, (T *)g->y + (s * g->channels + c) * g->points + first, g->points, channels, n, false);
  }
}

// Adds the products of n rows of gradients with the neighbours of their places, of packed channels in N vectors each.
#define DOTS(NAME, BYTES, N)                                                                                        \
  PLAIT_INLINE void FN(NAME)(const T *restrict x, int64_t taps, int32_t index[restrict][POINTS],                    \
                             const T *restrict rows, int64_t n, T dots[restrict][POINTS]) {                         \
    typedef T vector __attribute__((vector_size(BYTES), aligned(sizeof(T)), may_alias));                            \
    for (int64_t i = 0; i < n; i++) {                                                                               \
      const vector *row = (const vector *)rows + i * N;                                                             \
      for (int64_t k = 0; k < taps; k++) {                                                                          \
        if (index[k][i] < 0) continue;                                                                              \
        const vector *from = (const vector *)x + (int64_t)index[k][i] * N;                                          \
        vector sum = {0};                                                                                           \
        for (int v = 0; v < N; v++) sum += row[v] * from[v];                                                        \
        T total = 0;                                                                                                \
        for (int l = 0; l < BYTES / (int)sizeof(T); l++) total += sum[l];                                           \
        dots[k][i] += total;                                                                                        \
      }                                                                                                             \
    }                                                                                                               \
  }
DOTS(wide_dots, 32, WIDE * (int)sizeof(T) / 32)
DOTS(narrow_dots, 16, NARROW * (int)sizeof(T) / 16)
#undef DOTS

PLAIT_INLINE void FN(apart_dots)(const T *restrict x, int64_t step, int64_t channels, int64_t taps, int32_t index[restrict][POINTS],
                                 const T *restrict rows, int64_t n, T dots[restrict][POINTS], int64_t lanes) {
  for (int64_t i = 0; i < n; i++) {
    for (int64_t k = 0; k < taps; k++) {
      T sum = 0;
      for (int64_t c = 0; index[k][i] >= 0 && c < channels; c++) sum += rows[i * lanes + c] * x[c * step + index[k][i]];
      dots[k][i] += sum;
    }
  }
}

// The gradients of a chunk of places: the products with the neighbours times the derivatives of their weights.
PLAIT_CLONES static void FN(place_gradients)(const struct job *j, int64_t chunk) {
  const struct plaitk_grid *g = j->g;
  int64_t chunks = plait_ceil_div(g->points, POINTS), s = chunk / chunks, first = chunk % chunks * POINTS;
  int64_t n = plait_min64(POINTS, g->points - first), more = FN(taps)(g->mode), at = (s * g->points + first) * g->dims;
  int32_t index[TAPS][POINTS];
  T weight[TAPS][POINTS], share[DIMS][LINE][POINTS], slope[DIMS][LINE][POINTS], dots[TAPS][POINTS] = {0}, rows[POINTS * WIDE];
  int64_t taps = FN(find)(g, (const T *)g->grid + at, n, index, weight, share, slope);
  for (int64_t group = 0; group < j->groups; group++) {
    int64_t c = group * j->lanes, channels = plait_min64(j->lanes, g->channels - c);
    FN(turn)(rows, j->lanes, (T *)g->dy + (s * g->channels + c) * g->points + first, g->points, channels, n, true);
    const T *x = FN(elements)(j, s, group);
    if (!j->packed) {
      FN(apart_dots)(x, j->plane, channels, taps, index, rows, n, dots, j->lanes);
    } else if (j->lanes == WIDE) {
      FN(wide_dots)(x, taps, index, rows, n, dots);
    } else {
      FN(narrow_dots)(x, taps, index, rows, n, dots);
    }
  }
  for (int64_t d = 0; d < g->dims; d++) {
    T sums[POINTS] = {0};
    for (int64_t k = 0; k < taps; k++) {
      for (int64_t e = 0, left = k; e < g->dims; e++, left /= more) {
        const T *factor = e == d ? slope[e][left % more] : share[e][left % more];
        const T *before = e == 0 ? dots[k] : weight[0]; // weight is free
        for (int64_t i = 0; i < n; i++) weight[0][i] = before[i] * factor[i];
      }
      for (int64_t i = 0; i < n; i++) sums[i] += weight[0][i];
    }
    for (int64_t i = 0; i < n; i++) ((T *)g->dgrid)[at + i * g->dims + d] = sums[i];
  }
}

// Adds n weighted rows of gradients to the neighbours of their places.
#define ADDS(NAME, BYTES, N)                                                                                        \
  PLAIT_INLINE void FN(NAME)(T *restrict dx, int64_t taps, int32_t index[restrict][POINTS],                         \
                             T weight[restrict][POINTS], int64_t n, const T *restrict rows) {                       \
    typedef T vector __attribute__((vector_size(BYTES), aligned(sizeof(T)), may_alias));                            \
    for (int64_t i = 0; i < n; i++) {                                                                               \
      const vector *row = (const vector *)rows + i * N;                                                             \
      for (int64_t k = 0; k < taps; k++) {                                                                          \
        if (index[k][i] < 0) continue;                                                                              \
        vector *to = (vector *)dx + (int64_t)index[k][i] * N;                                                       \
        for (int v = 0; v < N; v++) to[v] += weight[k][i] * row[v];                                                 \
      }                                                                                                             \
    }                                                                                                               \
  }
ADDS(wide_adds, 32, WIDE * (int)sizeof(T) / 32)
ADDS(narrow_adds, 16, NARROW * (int)sizeof(T) / 16)
#undef ADDS

PLAIT_INLINE void FN(apart_adds)(T *restrict dx, int64_t step, int64_t channels, int64_t taps, int32_t index[restrict][POINTS],
                                 T weight[restrict][POINTS], int64_t n, const T *restrict rows, int64_t lanes) {
  for (int64_t i = 0; i < n; i++) {
    for (int64_t k = 0; k < taps; k++) {
      for (int64_t c = 0; index[k][i] >= 0 && c < channels; c++) dx[c * step + index[k][i]] += weight[k][i] * rows[i * lanes + c];
    }
  }
}

// The gradients of the elements of a group of channels of a sample. Places are taken in order, so that sums are the same whatever the
// number of threads.
PLAIT_CLONES static void FN(element_gradients)(const struct job *j, int64_t chunk) {
  const struct plaitk_grid *g = j->g;
  int64_t s = chunk / j->groups, c = chunk % j->groups * j->lanes, channels = plait_min64(j->lanes, g->channels - c);
  int32_t index[TAPS][POINTS];
  T weight[TAPS][POINTS], share[DIMS][LINE][POINTS], rows[POINTS * WIDE];
  T *out = (T *)g->dx + (s * g->channels + c) * j->plane, *dx = j->sums ? (T *)j->sums + chunk * j->plane * j->lanes : out;
  memset(dx, 0, (size_t)(j->plane * (j->sums ? j->lanes : channels)) * sizeof(T));
  for (int64_t first = 0; first < g->points; first += POINTS) {
    int64_t n = plait_min64(POINTS, g->points - first);
    int64_t taps = FN(find)(g, (const T *)g->grid + (s * g->points + first) * g->dims, n, index, weight, share, NULL);
    FN(turn)(rows, j->lanes, (T *)g->dy + (s * g->channels + c) * g->points + first, g->points, channels, n, true);
    if (!j->sums) {
      FN(apart_adds)(dx, j->plane, channels, taps, index, weight, n, rows, j->lanes);
    } else if (j->lanes == WIDE) {
      FN(wide_adds)(dx, taps, index, weight, n, rows);
    } else {
      FN(narrow_adds)(dx, taps, index, weight, n, rows);
    }
  }
  if (j->sums) FN(turn)(dx, j->lanes, out, j->plane, channels, j->plane, false);
}
#undef T
#undef FLOOR
#undef ROUND
#undef ABS
#undef BLOCK
#undef TRANSPOSE
#undef FN
