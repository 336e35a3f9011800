// Softmax of contiguous rows of n elements. See plait_each_float.h for the macros.
#ifdef FN

// The two halves have their own maxima, so that there are two dependency chains. NaN is ignored.
PLAIT_INLINE ACC FN(row_max)(const T *x, int64_t n) {
  ACC m0 = -ACC_INFINITY, m1 = n > 0 && LOAD(x[n - 1]) > m0 ? LOAD(x[n - 1]) : m0;
  int64_t h = n / 2;
  const T *x1 = x + h;
#pragma omp simd reduction(max : m0, m1)
  for (int64_t i = 0; i < h; i++) {
    ACC a = LOAD(x[i]), b = LOAD(x1[i]);
    m0 = a > m0 ? a : m0;
    m1 = b > m1 ? b : m1;
  }
  return m0 > m1 ? m0 : m1;
}

// Returns the sum of exp(x[i] - m).
PLAIT_INLINE double FN(row_sum)(const T *x, int64_t n, ACC m) {
  double total = 0;
  for (int64_t b = 0; b < n; b += SUM_BLOCK) {
    int64_t end = n - b < SUM_BLOCK ? n : b + SUM_BLOCK;
    ACC s = 0;
#pragma omp simd reduction(+ : s)
    for (int64_t i = b; i < end; i++) s += EXP(LOAD(x[i]) - m);
    total += s;
  }
  return total;
}

// The same, and it also updates *max to the maximum of the next row and prefetches the row after that. So memory is
// read while this row is computed. If keep, e gets the exponentials.
PLAIT_INLINE double FN(row_exp)(const T *restrict x, const T *restrict next, ACC *restrict e, bool keep, int64_t n, ACC m,
                                ACC *max) {
  ACC top[PLAIT_LANES];
  double total = 0;
  for (int l = 0; l < PLAIT_LANES; l++) top[l] = -ACC_INFINITY;
  for (int64_t b = 0; b < n; b += SUM_BLOCK) {
    int64_t end = n - b < SUM_BLOCK ? n : b + SUM_BLOCK, i = b;
    ACC s[PLAIT_LANES] = {0};
    for (; i + PLAIT_LANES <= end; i += PLAIT_LANES) {
      plait_prefetch(next + n + i, PLAIT_LANES * sizeof(T));
#pragma omp simd
      for (int l = 0; l < PLAIT_LANES; l++) {
        ACC v = EXP(LOAD(x[i + l]) - m), a = LOAD(next[i + l]);
        if (keep) e[i + l] = v;
        s[l] += v;
        top[l] = a > top[l] ? a : top[l];
      }
    }
#pragma omp simd
    for (int64_t l = 0; l < end - i; l++) {
      ACC v = EXP(LOAD(x[i + l]) - m), a = LOAD(next[i + l]);
      if (keep) e[i + l] = v;
      s[l] += v;
      top[l] = a > top[l] ? a : top[l];
    }
    PLAIT_FOLD_LANES(s, PLAIT_PLUS)
    total += (double)s[0];
  }
  PLAIT_FOLD_LANES(top, LARGER)
  *max = top[0];
  return total;
}

// Maximum and sum of exponentials of a row in one pass over memory (online softmax): each block's sum is rescaled to
// the running maximum.
PLAIT_INLINE double FN(row_online)(const T *x, int64_t n, ACC *max) {
  ACC m = -ACC_INFINITY;
  double total = 0;
  for (int64_t b = 0; b < n; b += ROW_BUFFER) {
    int64_t len = n - b < ROW_BUFFER ? n - b : ROW_BUFFER;
    ACC bm = FN(row_max)(x + b, len);
    // A block of -inf and NaN only has no maximum. With 0 in its place, the sum is 0 or NaN, as it should be.
    double s = FN(row_sum)(x + b, len, bm == -ACC_INFINITY ? 0 : bm);
    if (bm > m) {
      total = total * exp((double)m - (double)bm) + s;
      m = bm;
    } else if (bm == -ACC_INFINITY) {
      total += s;
    } else {
      total += s * exp((double)bm - (double)m);
    }
  }
  *max = m;
  return total;
}

PLAIT_CLONES static void FN(softmax_rows)(const T *x, T *y, int64_t rows, int64_t n, bool stream) {
  ACC e[ROW_BUFFER];
  _Alignas(PLAIT_LINE) T part[STREAM_PART];
  bool kept = n <= ROW_BUFFER;
  ACC m, next = kept ? FN(row_max)(x, n) : 0;
  for (int64_t r = 0; r < rows; r++, x += n, y += n) {
    m = next;
    double sum = kept ? FN(row_exp)(x, r + 1 < rows ? x + n : x, e, true, n, m, &next) : FN(row_online)(x, n, &m);
    ACC scale = (ACC)(1 / sum);
    for (int64_t b = 0, len; b < n; b += len) {
      len = stream ? plait_stream_part(y + b, n - b, sizeof(T)) : n;
      T *to = stream ? part : y;
      const ACC *from = e + b;
      if (kept) {
#pragma omp simd
        for (int64_t i = 0; i < len; i++) to[i] = STORE(from[i] * scale);
      } else {
#pragma omp simd
        for (int64_t i = 0; i < len; i++) to[i] = STORE(EXP(LOAD(x[b + i]) - m) * scale);
      }
      if (stream) plait_stream(y + b, part, len * (int64_t)sizeof(T));
    }
  }
}

PLAIT_CLONES static void FN(log_softmax_rows)(const T *x, T *y, int64_t rows, int64_t n, bool stream) {
  _Alignas(PLAIT_LINE) T part[STREAM_PART];
  bool near = n <= ROW_BUFFER;
  ACC m, next = near ? FN(row_max)(x, n) : 0;
  for (int64_t r = 0; r < rows; r++, x += n, y += n) {
    m = next;
    double sum = near ? FN(row_exp)(x, r + 1 < rows ? x + n : x, NULL, false, n, m, &next) : FN(row_online)(x, n, &m);
    ACC shift = (ACC)log(sum);
    for (int64_t b = 0, len; b < n; b += len) {
      len = stream ? plait_stream_part(y + b, n - b, sizeof(T)) : n;
      T *to = stream ? part : y;
#pragma omp simd
      for (int64_t i = 0; i < len; i++) to[i] = STORE(LOAD(x[b + i]) - m - shift);
      if (stream) plait_stream(y + b, part, len * (int64_t)sizeof(T));
    }
  }
}

// dx = y * (dy - sum(dy * y))
PLAIT_CLONES static void FN(softmax_rows_grad)(const T *y, const T *dy, T *dx, int64_t rows, int64_t n) {
  for (int64_t r = 0; r < rows; r++, y += n, dy += n, dx += n) {
    double total = 0;
    for (int64_t b = 0; b < n; b += SUM_BLOCK) {
      int64_t end = n - b < SUM_BLOCK ? n : b + SUM_BLOCK;
      ACC s = 0;
#pragma omp simd reduction(+ : s)
      for (int64_t i = b; i < end; i++) s += LOAD(dy[i]) * LOAD(y[i]);
      total += s;
    }
    ACC dot = (ACC)total;
#pragma omp simd
    for (int64_t i = 0; i < n; i++) dx[i] = STORE(LOAD(y[i]) * (LOAD(dy[i]) - dot));
  }
}

// dx = dy - exp(y) * sum(dy)
PLAIT_CLONES static void FN(log_softmax_rows_grad)(const T *y, const T *dy, T *dx, int64_t rows, int64_t n) {
  for (int64_t r = 0; r < rows; r++, y += n, dy += n, dx += n) {
    double total = 0;
    for (int64_t b = 0; b < n; b += SUM_BLOCK) {
      int64_t end = n - b < SUM_BLOCK ? n : b + SUM_BLOCK;
      ACC s = 0;
#pragma omp simd reduction(+ : s)
      for (int64_t i = b; i < end; i++) s += LOAD(dy[i]);
      total += s;
    }
    ACC sum = (ACC)total;
#pragma omp simd
    for (int64_t i = 0; i < n; i++) dx[i] = STORE(LOAD(dy[i]) - EXP(LOAD(y[i])) * sum);
  }
}

static void FN(task_rows)(const struct softmax_args *a, int64_t first, int64_t rows) {
  const T *in = (const T *)a->in + first * a->n, *dy = (const T *)a->dy + (a->dy ? first * a->n : 0);
  T *out = (T *)a->out + first * a->n;
  if (a->dy) {
    (a->log ? FN(log_softmax_rows_grad) : FN(softmax_rows_grad))(in, dy, out, rows, a->n);
  } else {
    (a->log ? FN(log_softmax_rows) : FN(softmax_rows))(in, out, rows, a->n, a->stream);
    if (a->stream) plait_stream_end();
  }
}

#endif
