// Connectionist temporal classification of float32 and float64: see ctc.h.

// Returns row r of a sample's scratch.
PLAIT_INLINE T *FN(row)(const struct job *j, int64_t sample, int64_t r) {
  return (T *)j->scratch + (sample * ROWS + r) * (j->p->places + BEFORE);
}

PLAIT_INLINE T FN(largest)(T a, T b, T c) {
  T m = a > b ? a : b;
  m = m > c ? m : c;
  return m == -(T)INFINITY ? 0 : m;
}

// Writes what it costs to come to each place from two before it: nothing between different labels.
PLAIT_INLINE void FN(skips)(const int64_t *restrict labels, int64_t places, T *restrict skip) {
  for (int64_t s = 0; s < places; s++) skip[s] = s % 2 == 1 && s > 1 && labels[s / 2] != labels[s / 2 - 1] ? 0 : -(T)INFINITY;
}

PLAIT_CLONES static void FN(forward)(const struct job *j, int64_t sample) {
  const struct plaitk_ctc *p = j->p;
  const int64_t *labels = (const int64_t *)p->targets + j->lengths[3 * sample];
  int64_t steps = j->lengths[3 * sample + 1], count = j->lengths[3 * sample + 2], places = 2 * count + 1, width = p->places + BEFORE;
  T *loss = (T *)j->loss + sample;
  if (steps == 0) {
    *loss = count > 0 ? INFINITY : 0;
    return;
  }
  T *restrict skip = FN(row)(j, sample, 0), *restrict own = FN(row)(j, sample, 1), *from = NULL, *to = NULL;
  FN(skips)(labels, places, skip);
  for (int64_t t = 0; t < steps; t++) {
    const T *restrict x = (const T *)p->x + (t * p->samples + sample) * p->classes;
    for (int64_t s = 0; s < places; s++) own[s] = x[s % 2 == 0 ? p->blank : labels[s / 2]];
    from = to;
    to = (j->forward ? (T *)j->forward + (sample * p->steps + t) * width : FN(row)(j, sample, 2 + t % 2)) + BEFORE;
    to[-2] = to[-1] = -(T)INFINITY;
    if (t == 0) {
      for (int64_t s = 0; s < places; s++) to[s] = s < 2 ? own[s] : -(T)INFINITY;
      continue;
    }
    const T *restrict before = from;
    T *restrict after = to;
    _Pragma("omp simd") for (int64_t s = 0; s < places; s++) {
      T a = before[s], b = before[s - 1], c = before[s - 2] + skip[s], m = FN(largest)(a, b, c);
      after[s] = LOG(EXP(a - m) + EXP(b - m) + EXP(c - m)) + own[s] + m;
    }
  }
  T a = to[places - 1], b = count > 0 ? to[places - 2] : -(T)INFINITY, m = FN(largest)(a, b, b);
  *loss = -(LOG(EXP(a - m) + EXP(b - m)) + m);
}

PLAIT_CLONES static void FN(backward)(const struct job *j, int64_t sample) {
  const struct plaitk_ctc *p = j->p;
  const int64_t *labels = (const int64_t *)p->targets + j->lengths[3 * sample];
  int64_t steps = j->lengths[3 * sample + 1], count = j->lengths[3 * sample + 2], places = 2 * count + 1, width = p->places + BEFORE;
  T *dx = (T *)j->dx + sample * p->classes, g = ((const T *)j->dloss)[sample];
  int64_t step = p->samples * p->classes;
  for (int64_t t = 0; t < p->steps; t++) memset(dx + t * step, 0, (size_t)p->classes * sizeof(T));
  if (steps == 0) return;
  T *restrict skip = FN(row)(j, sample, 0), *restrict there = FN(row)(j, sample, 1); // the probability to be at a place
  T *restrict stay = FN(row)(j, sample, 2), *restrict come = FN(row)(j, sample, 3), *restrict leap = FN(row)(j, sample, 4);
  FN(skips)(labels, places, skip);
  for (int64_t s = 0; s < width; s++) there[s] = come[s] = leap[s] = 0;
  const T *restrict row = (const T *)j->forward + (sample * p->steps + steps - 1) * width + BEFORE;
  T a = row[places - 1], b = count > 0 ? row[places - 2] : -(T)INFINITY, m = FN(largest)(a, b, b);
  T ea = EXP(a - m), eb = EXP(b - m), sum = ea + eb;
  there[places - 1] = sum == 0 ? 0 : ea / sum;
  if (count > 0) there[places - 2] = sum == 0 ? 0 : eb / sum;
  for (int64_t t = steps - 1;; t--) {
    T *restrict to = dx + t * step, blanks = 0;
    for (int64_t s = 0; s < places; s += 2) blanks += there[s];
    for (int64_t s = 1; s < places; s += 2) to[labels[s / 2]] -= there[s] * g;
    to[p->blank] -= blanks * g;
    if (t == 0) return;
    row -= width;
    _Pragma("omp simd") for (int64_t s = 0; s < places; s++) {
      T c = row[s - 2] + skip[s], most = FN(largest)(row[s], row[s - 1], c);
      T e0 = EXP(row[s] - most), e1 = EXP(row[s - 1] - most), e2 = EXP(c - most), all = e0 + e1 + e2;
      T share = there[s] / (all == 0 ? 1 : all);
      stay[s] = e0 * share, come[s] = e1 * share, leap[s] = e2 * share;
    }
    _Pragma("omp simd") for (int64_t s = 0; s < places; s++) there[s] = stay[s] + come[s + 1] + leap[s + 2];
  }
}
#undef T
#undef EXP
#undef LOG
#undef FN
