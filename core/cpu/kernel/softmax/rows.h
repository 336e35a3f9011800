// Softmax of contiguous rows of n elements. See plait_each_float.h for the macros.
#ifdef FN

// The halves have maxima of their own, so that comparisons do not wait for one another. A NaN is passed over.
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

// Returns the sum of e[i] = exp(x[i] - m), and keeps e unless it is NULL.
PLAIT_INLINE double FN(row_exp)(const T *x, ACC *e, int64_t n, ACC m) {
  double total = 0;
  for (int64_t b = 0; b < n; b += SUM_BLOCK) {
    int64_t end = n - b < SUM_BLOCK ? n : b + SUM_BLOCK;
    ACC s = 0;
    if (e) {
#pragma omp simd reduction(+ : s)
      for (int64_t i = b; i < end; i++) {
        ACC v = EXP(LOAD(x[i]) - m);
        e[i] = v;
        s += v;
      }
    } else {
#pragma omp simd reduction(+ : s)
      for (int64_t i = b; i < end; i++) s += EXP(LOAD(x[i]) - m);
    }
    total += s;
  }
  return total;
}

// Maximum and sum of exponentials of a row in one pass over memory: each block's sum is brought to the running maximum.
PLAIT_INLINE double FN(row_online)(const T *x, int64_t n, ACC *max) {
  ACC m = -ACC_INFINITY;
  double total = 0;
  for (int64_t b = 0; b < n; b += ROW_BUFFER) {
    int64_t len = n - b < ROW_BUFFER ? n - b : ROW_BUFFER;
    ACC bm = FN(row_max)(x + b, len);
    // A block of -inf or NaN alone has no maximum of its own; 0 keeps its sum what it is: 0 or NaN.
    double s = FN(row_exp)(x + b, NULL, len, bm == -ACC_INFINITY ? 0 : bm);
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

// Writes a finished row past the caches and fetches the next one meanwhile.
PLAIT_INLINE void FN(stream_row)(T *y, const T *row, const T *next, int64_t n) {
  for (int64_t b = 0; b < n; b += STREAM_PART) {
    int64_t len = n - b < STREAM_PART ? n - b : STREAM_PART;
    plait_fetch(next + b, len * (int64_t)sizeof(T));
    plait_stream(y + b, row + b, len * (int64_t)sizeof(T));
  }
}

PLAIT_CLONES static void FN(softmax_rows)(const T *x, T *y, int64_t rows, int64_t n, bool stream) {
  ACC e[ROW_BUFFER];
  T row[ROW_BUFFER];
  stream &= n <= ROW_BUFFER;
  for (int64_t r = 0; r < rows; r++, x += n, y += n) {
    ACC m;
    if (n <= ROW_BUFFER) {
      m = FN(row_max)(x, n);
      ACC scale = (ACC)(1 / FN(row_exp)(x, e, n, m));
      T *to = stream ? row : y;
#pragma omp simd
      for (int64_t i = 0; i < n; i++) to[i] = STORE(e[i] * scale);
      if (stream) FN(stream_row)(y, row, x + n, n);
    } else {
      ACC scale = (ACC)(1 / FN(row_online)(x, n, &m));
#pragma omp simd
      for (int64_t i = 0; i < n; i++) y[i] = STORE(EXP(LOAD(x[i]) - m) * scale);
    }
  }
}

PLAIT_CLONES static void FN(log_softmax_rows)(const T *x, T *y, int64_t rows, int64_t n, bool stream) {
  T row[ROW_BUFFER];
  stream &= n <= ROW_BUFFER;
  for (int64_t r = 0; r < rows; r++, x += n, y += n) {
    ACC m;
    double sum;
    if (n <= ROW_BUFFER) {
      m = FN(row_max)(x, n);
      sum = FN(row_exp)(x, NULL, n, m);
    } else {
      sum = FN(row_online)(x, n, &m);
    }
    ACC shift = (ACC)log(sum);
    T *to = stream ? row : y;
#pragma omp simd
    for (int64_t i = 0; i < n; i++) to[i] = STORE(LOAD(x[i]) - m - shift);
    if (stream) FN(stream_row)(y, row, x + n, n);
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
