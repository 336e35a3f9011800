// The gates of one step for rows r0 to r1 - 1 and features j0 to j1 - 1. H is the type of the states' elements, which
// LOAD and STORE convert from and to T. `sums` has the matrix products; gates are `gate` elements apart, rows `row`. `step` is the step's index in the tensors. `prev` is the index
// of the step before it in time, or -1. `zeros`, 3 * hidden of them, replace absent operands.

PLAIT_CLONES static void FN(lstm)(const struct plaitk_recurrent *a, int64_t step, int64_t prev, int64_t r0, int64_t r1,
                                  int64_t j0, int64_t j1, const void *sums, int64_t row, int64_t gate) {
  int64_t h = a->hidden;
  for (int64_t r = r0; r < r1; r++) {
    const T *s = (const T *)sums + r * row;
    const H *x = (const H *)a->x + (step * a->n + r) * 4 * h;
    const T *before = prev < 0 ? (const T *)a->c0 + r * h : (const T *)a->c + (prev * a->n + r) * h;
    T *c = (T *)a->c + (step * a->n + r) * h;
    H *y = (H *)a->y + (step * a->n + r) * h;
    T *act = (T *)a->acts + step * a->acts_step + r * 4 * h;
#pragma omp simd
    for (int64_t j = j0; j < j1; j++) {
      T i = SIGMOID(LOAD(x[j]) + s[j]), f = SIGMOID(LOAD(x[h + j]) + s[gate + j]);
      T g = TANH(LOAD(x[2 * h + j]) + s[2 * gate + j]), o = SIGMOID(LOAD(x[3 * h + j]) + s[3 * gate + j]);
      T v = f * before[j] + i * g;
      c[j] = v;
      y[j] = STORE(o * TANH(v));
      act[j] = i, act[h + j] = f, act[2 * h + j] = g, act[3 * h + j] = o;
    }
  }
}

// Here `sums` is one gate wide: the gradient of the state that comes from the next step.
PLAIT_CLONES static void FN(lstm_grad)(const struct plaitk_recurrent *a, int64_t step, int64_t prev, int64_t r0,
                                       int64_t r1, int64_t j0, int64_t j1, const void *sums, int64_t row, const void *zeros) {
  int64_t h = a->hidden;
  for (int64_t r = r0; r < r1; r++) {
    const T *s = (const T *)sums + r * row, *act = (const T *)a->acts + (step * a->n + r) * 4 * h;
    const T *c = (const T *)a->c + (step * a->n + r) * h;
    const T *before = prev < 0 ? (const T *)a->c0 + r * h : (const T *)a->c + (prev * a->n + r) * h;
    const H *dy = a->dy ? (const H *)a->dy + (step * a->n + r) * h : zeros;
    const T *dc = a->dc ? (const T *)a->dc + (step * a->n + r) * h : zeros;
    T *carry = (T *)a->carry + r * h;
    H *dx = (H *)a->dx + (step * a->n + r) * 4 * h;
#pragma omp simd
    for (int64_t j = j0; j < j1; j++) {
      T i = act[j], f = act[h + j], g = act[2 * h + j], o = act[3 * h + j], t = TANH(c[j]);
      T dh = s[j] + LOAD(dy[j]), d = carry[j] + dc[j] + dh * o * (1 - t * t);
      carry[j] = d * f;
      dx[j] = STORE(d * g * i * (1 - i));
      dx[h + j] = STORE(d * before[j] * f * (1 - f));
      dx[2 * h + j] = STORE(d * i * (1 - g * g));
      dx[3 * h + j] = STORE(dh * t * o * (1 - o));
    }
  }
}

PLAIT_CLONES static void FN(gru)(const struct plaitk_recurrent *a, int64_t step, int64_t prev, int64_t r0, int64_t r1,
                                 int64_t j0, int64_t j1, const void *sums, int64_t row, int64_t gate,
                                 const void *zeros) {
  int64_t h = a->hidden;
  const T *bias = a->bias ? a->bias : zeros;
  for (int64_t r = r0; r < r1; r++) {
    const T *s = (const T *)sums + r * row;
    const H *x = (const H *)a->x + (step * a->n + r) * 3 * h;
    const H *before = (prev < 0 ? (const H *)a->h0 : (const H *)a->y + prev * a->n * h) + r * h;
    H *y = (H *)a->y + (step * a->n + r) * h;
    T *act = (T *)a->acts + step * a->acts_step + r * 4 * h;
#pragma omp simd
    for (int64_t j = j0; j < j1; j++) {
      T sn = s[2 * gate + j] + bias[2 * h + j];
      T reset = SIGMOID(LOAD(x[j]) + (s[j] + bias[j])), z = SIGMOID(LOAD(x[h + j]) + (s[gate + j] + bias[h + j]));
      T next = TANH(LOAD(x[2 * h + j]) + reset * sn);
      y[j] = STORE(next + z * (LOAD(before[j]) - next));
      act[j] = reset, act[h + j] = z, act[2 * h + j] = next, act[3 * h + j] = sn;
    }
  }
}

PLAIT_CLONES static void FN(gru_grad)(const struct plaitk_recurrent *a, int64_t step, int64_t prev, int64_t r0,
                                      int64_t r1, int64_t j0, int64_t j1, const void *sums, int64_t row, const void *zeros) {
  int64_t h = a->hidden;
  for (int64_t r = r0; r < r1; r++) {
    const T *s = (const T *)sums + r * row, *act = (const T *)a->acts + (step * a->n + r) * 4 * h;
    const H *before = (prev < 0 ? (const H *)a->h0 : (const H *)a->y + prev * a->n * h) + r * h;
    const H *dy = a->dy ? (const H *)a->dy + (step * a->n + r) * h : zeros;
    T *carry = (T *)a->carry + r * h;
    H *dx = (H *)a->dx + (step * a->n + r) * 3 * h;
    H *ds = (H *)a->ds + (step * a->n + r) * 3 * h;
#pragma omp simd
    for (int64_t j = j0; j < j1; j++) {
      T reset = act[j], z = act[h + j], next = act[2 * h + j];
      T dh = s[j] + carry[j] + LOAD(dy[j]);
      T dn = dh * (1 - z) * (1 - next * next), dr = dn * act[3 * h + j] * reset * (1 - reset);
      T dz = dh * (LOAD(before[j]) - next) * z * (1 - z);
      carry[j] = dh * z;
      ds[j] = dx[j] = STORE(dr), ds[h + j] = dx[h + j] = STORE(dz);
      dx[2 * h + j] = STORE(dn), ds[2 * h + j] = STORE(dn * reset);
    }
  }
}

#undef T
#undef H
#undef LOAD
#undef STORE
#undef FN
#undef SIGMOID
#undef TANH
