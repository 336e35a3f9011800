// What LAPACK does, for small matrices and where there is no library, in the shortest way that is right.

#if T_DOUBLE
#define EPSILON DBL_EPSILON
#else
#define EPSILON FLT_EPSILON
#endif

// y += f * x
PLAIT_INLINE void FN(add_scaled)(int64_t n, T f, const T *restrict x, T *restrict y) {
#pragma omp simd
  for (int64_t i = 0; i < n; i++) y[i] += f * x[i];
}

PLAIT_INLINE T FN(dot)(int64_t n, const T *restrict x, const T *restrict y) {
  T s = 0;
#pragma omp simd reduction(+ : s)
  for (int64_t i = 0; i < n; i++) s += x[i] * y[i];
  return s;
}

// Applies a Givens rotation to x and y, of n elements each.
PLAIT_INLINE void FN(rotate)(int64_t n, T c, T s, T *restrict x, T *restrict y) {
#pragma omp simd
  for (int64_t i = 0; i < n; i++) {
    T a = x[i], b = y[i];
    x[i] = c * a - s * b;
    y[i] = s * a + c * b;
  }
}

// L, without its unit diagonal, and U replace a, which has n columns of m elements. Row i was exchanged with row pivots[i] - 1.
PLAIT_CLONES static int64_t FN(plain_lu)(int64_t m, int64_t n, T *a, int32_t *pivots) {
  int64_t failed = 0;
  for (int64_t k = 0; k < m && k < n; k++) {
    T *x = a + k * m;
    int64_t p = k;
    for (int64_t i = k + 1; i < m; i++) {
      if (ABS(x[i]) > ABS(x[p])) p = i;
    }
    pivots[k] = (int32_t)p + 1;
    if (x[p] == 0) {
      if (failed == 0) failed = k + 1;
      continue;
    }
    for (int64_t j = 0; p != k && j < n; j++) {
      T t = a[j * m + k];
      a[j * m + k] = a[j * m + p];
      a[j * m + p] = t;
    }
    for (int64_t i = k + 1; i < m; i++) x[i] /= x[k];
    for (int64_t j = k + 1; j < n; j++) FN(add_scaled)(m - k - 1, -a[j * m + k], x + k + 1, a + j * m + k + 1);
  }
  return failed;
}

// Solves for the n rows of x, k elements each, with a triangle of a, whose rows and columns are `row` and `col` apart.
PLAIT_CLONES static void FN(plain_triangular)(int64_t n, int64_t k, const T *a, int64_t row, int64_t col, T *x, bool upper, bool unit) {
  for (int64_t step = 0; step < n; step++) {
    int64_t i = upper ? n - 1 - step : step;
    for (int64_t j = upper ? i + 1 : 0; j < (upper ? n : i); j++) FN(add_scaled)(k, -a[i * row + j * col], x + j * k, x + i * k);
    for (int64_t c = 0; !unit && c < k; c++) x[i * k + c] /= a[i * (row + col)];
  }
}

// The inverse of an upper triangle replaces it, by columns that are `col` apart.
PLAIT_CLONES static void FN(plain_inverse)(int64_t n, T *a, int64_t col) {
  for (int64_t j = 0; j < n; j++) {
    T *x = a + j * col, last = 1 / x[j];
    for (int64_t k = 0; k < j; k++) {  // the columns before are those of the inverse
      T t = x[k];
      FN(add_scaled)(k, t, a + k * col, x);
      x[k] = t * a[k * col + k];
    }
    for (int64_t i = 0; i < j; i++) x[i] *= -last;
    x[j] = last;
  }
}

// L replaces the lower triangle of a, whose rows are contiguous.
PLAIT_CLONES static int64_t FN(plain_cholesky)(int64_t n, T *a) {
  for (int64_t i = 0; i < n; i++) {
    for (int64_t j = 0; j <= i; j++) {
      T rest = a[i * n + j] - FN(dot)(j, a + i * n, a + j * n);
      if (i == j && !(rest > 0)) return i + 1;
      a[i * n + j] = i == j ? SQRT(rest) : rest / a[j * n + j];
    }
  }
  return 0;
}

// The largest magnitude of n elements.
PLAIT_INLINE T FN(largest)(int64_t n, const T *x) {
  T most = 0;
#pragma omp simd reduction(max : most)
  for (int64_t i = 0; i < n; i++) most = ABS(x[i]) > most ? ABS(x[i]) : most;
  return most;
}

// Writes v of the Householder reflection I - v v' that leaves of a column x, of n elements, the first one alone; 0 if there is no other.
PLAIT_INLINE void FN(reflection)(int64_t n, const T *x, T *v) {
  T most = FN(largest)(n, x), sum = 0;
  for (int64_t i = 0; i < n; i++) v[i] = x[i] / most;  // so that nothing overflows or vanishes
  for (int64_t i = 1; i < n; i++) sum += v[i] * v[i];
  if (n == 1 || most == 0 || sum == 0) {
    memset(v, 0, (size_t)n * sizeof *v);
    return;
  }
  T beta = SQRT(v[0] * v[0] + sum);
  if (v[0] > 0) beta = -beta;
  T root = SQRT((beta - v[0]) / beta), head = v[0] - beta;
  v[0] = root;
  for (int64_t i = 1; i < n; i++) v[i] = v[i] / head * root;
}

// Householder reflections I - v v' that make the n columns of a, m elements each, upper triangular: R. w gets the min(m, n) v, m elements each.
PLAIT_CLONES static void FN(plain_reflections)(int64_t m, int64_t n, T *a, T *w) {
  int64_t count = m < n ? m : n;
  memset(w, 0, (size_t)(count * m) * sizeof *w);
  for (int64_t j = 0; j < count; j++) {
    T *v = w + j * m + j;
    int64_t rest = m - j;
    FN(reflection)(rest, a + j * m + j, v);
    for (int64_t c = j; v[0] != 0 && c < n; c++) FN(add_scaled)(rest, -FN(dot)(rest, v, a + c * m + j), v, a + c * m + j);
  }
}

// QR: the upper triangle of a, n columns of m elements, becomes R, and q gets the min(m, n) columns of Q. w is for the reflections.
PLAIT_CLONES static void FN(plain_qr)(int64_t m, int64_t n, T *a, T *q, T *w) {
  int64_t count = m < n ? m : n;
  FN(plain_reflections)(m, n, a, w);
  for (int64_t j = 0; j < count; j++) {
    T *x = q + j * m;
    memset(x, 0, (size_t)m * sizeof *x);
    x[j] = 1;
    for (int64_t r = j; r >= 0; r--) FN(add_scaled)(m - r, -FN(dot)(m - r, w + r * m + r, x + r), w + r * m + r, x + r);
  }
}

// Applies the reflection I - v v' to rows `from` to m - 1 of a.
PLAIT_INLINE void FN(reflect)(int64_t from, int64_t m, const T *v, T (*a)[SMALL_QR]) {
  T sum[SMALL_QR] = {0};
  for (int64_t i = from; i < m; i++) {
#pragma omp simd
    for (int c = 0; c < SMALL_QR; c++) sum[c] += v[i] * a[i][c];
  }
  for (int64_t i = from; i < m; i++) {
#pragma omp simd
    for (int c = 0; c < SMALL_QR; c++) a[i][c] -= v[i] * sum[c];
  }
}

// QR of a row-major x of at most SMALL_QR rows and columns, to row-major q and r: all columns at once.
PLAIT_CLONES static void FN(small_qr)(int64_t m, int64_t n, const T *x, T *q, T *r) {
  T a[SMALL_QR][SMALL_QR] = {{0}}, v[SMALL_QR][SMALL_QR], unit[SMALL_QR][SMALL_QR] = {{0}};
  int64_t count = m < n ? m : n;
  for (int64_t i = 0; i < m; i++) memcpy(a[i], x + i * n, (size_t)n * sizeof *x);
  for (int64_t j = 0; j < count; j++) {
    T column[SMALL_QR] = {0};
    for (int64_t i = j; i < m; i++) column[i - j] = a[i][j];
    FN(reflection)(m - j, column, v[j] + j);
    FN(reflect)(j, m, v[j], a);
  }
  for (int64_t j = 0; j < count; j++) unit[j][j] = 1;
  for (int64_t j = count - 1; j >= 0; j--) FN(reflect)(j, m, v[j], unit);
  for (int64_t i = 0; i < m; i++) memcpy(q + i * count, unit[i], (size_t)count * sizeof *q);
  for (int64_t i = 0; i < count; i++) {
    memset(r + i * n, 0, (size_t)i * sizeof *r);
    memcpy(r + i * n + i, a[i] + i, (size_t)(n - i) * sizeof *r);
  }
}

// The reflections as I - tau v v', where v is 1 on the diagonal of a and lies below it.
PLAIT_CLONES static void FN(plain_geqrf)(int64_t m, int64_t n, T *a, T *tau, T *w) {
  FN(plain_reflections)(m, n, a, w);
  for (int64_t j = 0; j < m && j < n; j++) {
    const T *v = w + j * m;
    tau[j] = v[j] * v[j];
    for (int64_t i = j + 1; i < m; i++) a[j * m + i] = v[j] == 0 ? 0 : v[i] / v[j];
  }
}

// Exchanges elements that are strides apart.
static void FN(swap)(int64_t n, T *x, int64_t x_step, T *y, int64_t y_step) {
  for (int64_t i = 0; i < n; i++) {
    T t = x[i * x_step];
    x[i * x_step] = y[i * y_step];
    y[i * y_step] = t;
  }
}

// LDL' of the lower triangle of a, by columns, with pivots of one and of two rows. L and D replace it, and the exchanges of a step are not
// applied to the columns before it.
//
// Bunch, Kaufman: Some stable methods for calculating inertia and solving symmetric linear systems, 1977.
PLAIT_CLONES static int64_t FN(plain_ldl)(int64_t n, T *a, int32_t *pivots) {
  const T alpha = (1 + SQRT((T)17)) / 8;
  int64_t failed = 0, step = 1;
  for (int64_t k = 0; k < n; k += step) {
    T *x = a + k * n, own = ABS(x[k]), most = 0;
    int64_t p = k, r = k;  // the pivot's row, and that of the largest element of the column
    for (int64_t i = k + 1; i < n; i++) {
      if (ABS(x[i]) > most) most = ABS(x[r = i]);
    }
    step = 1;
    if (!(own > 0 || most > 0) || isnan(own)) {
      if (failed == 0) failed = k + 1;
      pivots[k] = (int32_t)k + 1;
      continue;
    }
    if (own < alpha * most) {
      T others = 0;  // the largest of row r but for the diagonal
      for (int64_t j = k; j < r; j++) others = ABS(a[j * n + r]) > others ? ABS(a[j * n + r]) : others;
      for (int64_t i = r + 1; i < n; i++) others = ABS(a[r * n + i]) > others ? ABS(a[r * n + i]) : others;
      if (own < alpha * most * (most / others)) {
        p = r;
        step = ABS(a[r * n + r]) < alpha * others ? 2 : 1;
      }
    }
    int64_t to = k + step - 1;
    if (p != to) {
      FN(swap)(n - p - 1, a + to * n + p + 1, 1, a + p * n + p + 1, 1);
      FN(swap)(p - to - 1, a + to * n + to + 1, 1, a + (to + 1) * n + p, n);
      FN(swap)(1, a + to * n + to, 1, a + p * n + p, 1);
      if (step == 2) FN(swap)(1, x + to, 1, x + p, 1);
    }
    if (step == 1) {
      pivots[k] = (int32_t)p + 1;
      for (int64_t j = k + 1; j < n; j++) FN(add_scaled)(n - j, -(x[j] / x[k]), x + j, a + j * n + j);
      for (int64_t i = k + 1; i < n; i++) x[i] /= x[k];
      continue;
    }
    pivots[k] = pivots[k + 1] = -((int32_t)p + 1);
    T *y = x + n, cross = x[k + 1], first = x[k] / cross, second = y[k + 1] / cross, scale = 1 / (first * second - 1) / cross;
    for (int64_t j = k + 2; j < n; j++) {
      T u = (second * x[j] - y[j]) * scale, v = (first * y[j] - x[j]) * scale;  // row j of L
      FN(add_scaled)(n - j, -u, x + j, a + j * n + j);
      FN(add_scaled)(n - j, -v, y + j, a + j * n + j);
      x[j] = u;
      y[j] = v;
    }
  }
  return failed;
}

// SVD by Hestenes's one-sided Jacobi rotations. The n columns of A, of m >= n elements, become the columns of U. v gets the n columns of V.
PLAIT_CLONES static bool FN(plain_svd)(int64_t m, int64_t n, T *a, T *s, T *v) {
  const T least = EPSILON * SQRT((T)(16 + m));
  memset(v, 0, (size_t)(n * n) * sizeof *v);
  for (int64_t i = 0; i < n; i++) v[i * n + i] = 1;
  T most = FN(largest)(n * m, a);
  for (int64_t i = 0; most > 0 && i < n * m; i++) a[i] /= most;
  T all = FN(dot)(n * m, a, a);
  bool turned = true;
  for (int sweep = 0; turned; sweep++) {
    if (sweep == 60) return false;
    turned = false;
    for (int64_t p = 0; p < n; p++) {
      for (int64_t q = p + 1; q < n; q++) {
        T *x = a + p * m, *y = a + q * m;
        T xx = FN(dot)(m, x, x), yy = FN(dot)(m, y, y), xy = FN(dot)(m, x, y);
        if (ABS(xy) <= least * SQRT(xx) * SQRT(yy) || ABS(xy) <= EPSILON * EPSILON / 16 * all) continue;
        turned = true;
        T theta = (yy - xx) / (2 * xy);
        T t = (theta < 0 ? -1 : 1) / (ABS(theta) + SQRT(theta * theta + 1));
        T c = 1 / SQRT(t * t + 1);
        FN(rotate)(m, c, c * t, x, y);
        FN(rotate)(n, c, c * t, v + p * n, v + q * n);
      }
    }
  }
  for (int64_t i = 0; i < n; i++) s[i] = SQRT(FN(dot)(m, a + i * m, a + i * m));
  for (int64_t i = 0; i < n; i++) {
    int64_t first = i;
    for (int64_t j = i + 1; j < n; j++) {
      if (s[j] > s[first]) first = j;
    }
    if (first == i) continue;
    FN(rotate)(m, 0, 1, a + i * m, a + first * m);  // exchanges two columns, except for a sign
    FN(rotate)(n, 0, 1, v + i * n, v + first * n);
    T t = s[i];
    s[i] = s[first];
    s[first] = t;
  }
  // For singular values of zero, columns of U are any unit vectors orthogonal to the other columns.
  int64_t unit = 0;
  T zero = n > 0 ? 4 * EPSILON * s[0] : 0;
  for (int64_t i = 0; i < n; i++) {
    T *x = a + i * m, norm = s[i];
    while (!(norm > zero) && unit < m) {
      memset(x, 0, (size_t)m * sizeof *x);
      x[unit++] = 1;
      for (int pass = 0; pass < 2; pass++) {
        for (int64_t j = 0; j < i; j++) FN(add_scaled)(m, -FN(dot)(m, x, a + j * m), a + j * m, x);
      }
      norm = SQRT(FN(dot)(m, x, x));
      if (norm >= 0.5f / SQRT((T)m)) break;
      norm = 0;
    }
    for (int64_t j = 0; j < m; j++) x[j] /= norm;
    s[i] *= most;
  }
  return true;
}

// The eigenvectors of A are the singular vectors of A + shift I, none of whose eigenvalues is negative; they become the rows of vectors.
PLAIT_CLONES static bool FN(plain_eigh)(int64_t n, T *a, T *values, T *vectors) {
  T shift = 0;
  for (int64_t i = 0; i < n; i++) {
    T sum = 0;
    for (int64_t j = 0; j < n; j++) sum += ABS(a[i * n + j]);
    shift = sum > shift ? sum : shift;
  }
  for (int64_t i = 0; i < n; i++) a[i * n + i] += shift;
  if (!FN(plain_svd)(n, n, a, values, vectors)) return false;
  for (int64_t i = 0; i < (n + 1) / 2; i++) {
    T low = values[n - 1 - i] - shift;
    values[n - 1 - i] = values[i] - shift;
    values[i] = low;
    if (i != n - 1 - i) FN(rotate)(n, 0, 1, vectors + i * n, vectors + (n - 1 - i) * n);
  }
  return true;
}
