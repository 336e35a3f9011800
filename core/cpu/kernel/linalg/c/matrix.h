// The operations on one matrix. LAPACK takes matrices by columns: what it is given of a row-major A is A', or a transposed copy.

#include "plain.h"

#define ROUTINE(type, name) ((plait_##type *)l->lapack->routine[name][T_DOUBLE])

static const T FN(one) = 1, FN(minus_one) = -1;

// Writes the transpose of a matrix whose rows are `from_row` apart to one whose rows are `to_row` apart.
static void FN(flip)(int64_t rows, int64_t cols, const T *from, int64_t from_row, T *to, int64_t to_row) {
  const int64_t size = sizeof(T);
  plaitk_plane p = {.n = {rows, cols}, .out = {size, to_row * size}, .in = {from_row * size, size}};
  plaitk_copying_plane(size, (char *)to, (const char *)from, &p);
}

PLAIT_CLONES static bool FN(finite)(int64_t n, const T *x) {
  T sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < n; i++) sum += x[i] * 0;
  return sum == 0;
}

#include "abreast.h"

// LU of a matrix of n columns.
static int64_t FN(lu)(const job *l, int64_t m, int64_t n, T *a, int32_t *pivots) {
  if (!l->lapack || m <= SMALL_LU || n <= SMALL_LU) return FN(plain_lu)(m, n, a, pivots);
  int64_t info = 0;
  ROUTINE(getrf, PLAIT_GETRF)(&m, &n, a, &m, pivots, &info);
  for (int64_t i = 0; l->lapack->wide && i < m && i < n; i++) pivots[i] = (int32_t)((int64_t *)(void *)pivots)[i];
  return (int32_t)info;
}

// Solves for the n rows of x, k elements each, with a triangle of a, which is given by rows or by columns. By columns, x' is on the left of
// the triangle's transpose.
static void FN(triangular)(const job *l, int64_t n, int64_t k, const T *a, bool by_columns, T *x, bool upper, bool unit) {
  if (!l->lapack || n <= SMALL_TRIANGLE) {
    FN(plain_triangular)(n, k, a, by_columns ? 1 : n, by_columns ? n : 1, x, upper, unit);
  } else if (k > 0) {
    ROUTINE(trsm, PLAIT_TRSM)("R", upper == by_columns ? "U" : "L", by_columns ? "T" : "N", unit ? "U" : "N", &k, &n, &FN(one), a, &n, x,
                              &k, 1, 1, 1, 1);
  }
}

// The inverse of an upper triangle replaces it, by columns that are `col` apart: the inverses of its two triangles, and of its square B
// between them, A and C, -A⁻¹ B C⁻¹.
static void FN(inverse)(const job *l, int64_t n, T *a, int64_t col) {
  if (n <= SMALL_INVERSE) {
    FN(plain_inverse)(n, a, col);
    return;
  }
  int64_t half = n / 2, rest = n - half;
  T *b = a + half * col, *c = b + half;
  ROUTINE(trsm, PLAIT_TRSM)("L", "U", "N", "N", &half, &rest, &FN(minus_one), a, &col, b, &col, 1, 1, 1, 1);
  ROUTINE(trsm, PLAIT_TRSM)("R", "U", "N", "N", &half, &rest, &FN(one), c, &col, b, &col, 1, 1, 1, 1);
  FN(inverse)(l, half, a, col);
  FN(inverse)(l, rest, c, col);
}

// Exchanges rows i of x, of k elements, with rows pivots[i] - 1; the last ones first if backward.
static void FN(exchange)(int64_t n, int64_t k, const int32_t *pivots, T *x, bool backward) {
  for (int64_t step = 0; step < n; step++) {
    int64_t i = backward ? n - 1 - step : step;
    T *row = x + i * k, *other = x + (pivots[i] - 1) * k;
    for (int64_t c = 0; row != other && c < k; c++) {
      T t = row[c];
      row[c] = other[c];
      other[c] = t;
    }
  }
}

static result FN(solve)(const job *l, const buffers *w, const T *a, const T *b, T *x) {
  int64_t n = l->of->n, k = l->of->k;
  T *lu = w->a;
  FN(flip)(n, n, a, n, lu, n);
  int64_t failed = FN(lu)(l, n, n, lu, w->ints);
  if (failed) return (result){LINALG_SINGULAR, failed};
  if (!b && l->lapack && n > SMALL_TRIANGLE) {  // by columns: U⁻¹ L⁻¹
    memcpy(x, lu, (size_t)(n * n) * sizeof *x);
    for (int64_t i = 0; i < n; i++) memset(lu + i * n + i + 1, 0, (size_t)(n - i - 1) * sizeof *lu);
    FN(inverse)(l, n, lu, n);
    ROUTINE(trsm, PLAIT_TRSM)("R", "L", "N", "U", &n, &n, &FN(one), x, &n, lu, &n, 1, 1, 1, 1);
    FN(exchange)(n, n, w->ints, lu, true);
    FN(flip)(n, n, lu, n, x, n);
    return (result){0};
  }
  if (b) {
    memcpy(x, b, (size_t)(n * k) * sizeof *b);
  } else {
    memset(x, 0, (size_t)(n * n) * sizeof *x);
    for (int64_t i = 0; i < n; i++) x[i * n + i] = 1;
  }
  FN(exchange)(n, k, w->ints, x, false);
  FN(triangular)(l, n, k, lu, true, x, false, true);
  FN(triangular)(l, n, k, lu, true, x, true, false);
  return (result){0};
}

static void FN(det)(const job *l, const buffers *w, const T *a, T *det, T *sign, T *size) {
  int64_t n = l->of->n;
  T *lu = w->a;
  FN(flip)(n, n, a, n, lu, n);
  FN(lu)(l, n, n, lu, w->ints);
  double product = 1, part = 1, logs = 0, s = 1;
  for (int64_t i = 0; i < n; i++) {
    double d = lu[i * n + i], turn = w->ints[i] == i + 1 ? 1 : -1;
    product *= d * turn;
    s *= d == 0 ? 0 : d < 0 ? -turn : turn;
    // A logarithm takes as long as a small matrix: one for as many factors as neither overflow nor vanish.
    if (fabs(d) > 1e100 || fabs(d) < 1e-100) {
      logs += log(fabs(d));
      continue;
    }
    part *= fabs(d);
    if (part > 1e100 || part < 1e-100) {
      logs += log(part);
      part = 1;
    }
  }
  logs += log(part);
  *det = (T)product;
  *sign = isnan(product) ? (T)product : (T)s;
  *size = (T)logs;
}

// The lower triangle is, by columns, the upper one of L L' = A.
static int64_t FN(cholesky)(const job *l, int64_t n, T *a) {
  int64_t failed = 0;
  if (!l->lapack || n <= SMALL_CHOLESKY) {
    failed = FN(plain_cholesky)(n, a);
  } else {
    ROUTINE(potrf, PLAIT_POTRF)("U", &n, a, &n, &failed, 1);
    failed = (int32_t)failed;
    for (int64_t i = 0; i < n && !failed; i++) failed = a[i * n + i] > 0 ? 0 : i + 1;  // NaN
  }
  for (int64_t i = 0; i < n; i++) memset(a + i * n + i + 1, 0, (size_t)(n - i - 1) * sizeof *a);
  return failed;
}

static void FN(qr)(const job *l, const buffers *w, const T *x, T *q, T *r) {
  int64_t m = l->of->m, n = l->of->n, k = m < n ? m : n, info = 0;
  T *a = w->a, *columns = a;
  if (m <= SMALL_QR && n <= SMALL_QR) {
    FN(small_qr)(m, n, x, q, r);
    return;
  }
  FN(flip)(m, n, x, n, a, m);
  bool plain = !l->lapack || k <= SMALL_QR;
  if (plain) {
    columns = w->b;
    FN(plain_qr)(m, n, a, columns, w->c);
  } else {
    ROUTINE(geqrf, PLAIT_GEQRF)(&m, &n, a, &m, w->c, w->work, &w->lwork, &info);
  }
  FN(flip)(n, k, a, m, r, n);
  for (int64_t i = 1; i < k; i++) memset(r + i * n, 0, (size_t)i * sizeof *r);
  if (!plain) ROUTINE(orgqr, PLAIT_ORGQR)(&m, &k, &k, a, &m, w->c, w->work, &w->lwork, &info);
  FN(flip)(k, m, columns, m, q, k);
}

static void FN(geqrf)(const job *l, const buffers *w, const T *x, T *out, T *tau) {
  int64_t m = l->of->m, n = l->of->n, info = 0;
  T *a = w->a;
  FN(flip)(m, n, x, n, a, m);
  if (!l->lapack || min64(m, n) <= SMALL_QR) {
    FN(plain_geqrf)(m, n, a, tau, w->c);
  } else {
    ROUTINE(geqrf, PLAIT_GEQRF)(&m, &n, a, &m, tau, w->work, &w->lwork, &info);
  }
  FN(flip)(n, m, a, m, out, n);
}

// Of a and the result, which is row-major, the lower triangles count.
static int64_t FN(ldl)(const job *l, const buffers *w, const T *x, T *out, int32_t *pivots) {
  int64_t n = l->of->n, info = 0;
  T *a = w->a;
  FN(flip)(n, n, x, n, a, n);
  if (!l->lapack || n <= SMALL_LU) {
    info = FN(plain_ldl)(n, a, w->ints);
  } else {
    ROUTINE(sytrf, PLAIT_SYTRF)("L", &n, a, &n, w->ints, w->work, &w->lwork, &info, 1);
    for (int64_t i = 0; l->lapack->wide && i < n; i++) w->ints[i] = (int32_t)((int64_t *)(void *)w->ints)[i];
  }
  for (int64_t i = 0; i < n; i++) memset(a + i * n, 0, (size_t)i * sizeof *a);
  FN(flip)(n, n, a, n, out, n);
  memcpy(pivots, w->ints, (size_t)n * sizeof *pivots);
  return (int32_t)info;
}

static bool FN(eigh)(const job *l, const buffers *w, const T *x, T *values, T *vectors) {
  int64_t n = l->of->n, info = 0;
  T *a = w->a;
  memcpy(a, x, (size_t)(n * n) * sizeof *a);
  if (!FN(finite)(n * n, a)) return false;
  if (!l->lapack) {
    info = !FN(plain_eigh)(n, a, values, w->b);
    a = w->b;
  } else {
    ROUTINE(syevd, PLAIT_SYEVD)(vectors ? "V" : "N", "L", &n, a, &n, values, w->work, &w->lwork, w->ints, &w->lints, &info, 1, 1);
  }
  if (vectors) FN(flip)(n, n, a, n, vectors, n);
  return (int32_t)info == 0;
}

static bool FN(svd)(const job *l, const buffers *w, const T *x, T *s, T *u, T *vh) {
  int64_t m = l->of->m, n = l->of->n, k = m < n ? m : n, info = 0;
  T *a = w->a;
  if (!FN(finite)(m * n, x)) return false;
  if (l->lapack && (u || k > SMALL_VALUES)) {
    FN(flip)(m, n, x, n, a, m);
    ROUTINE(gesdd, PLAIT_GESDD)(u ? "S" : "N", &m, &n, a, &m, s, w->b, &m, w->c, &k, w->work, &w->lwork, w->ints, &info, 1);
    if (u) FN(flip)(k, m, w->b, m, u, k);
    if (u) FN(flip)(n, k, w->c, k, vh, n);
  } else if (m >= n) {
    FN(flip)(m, n, x, n, a, m);
    info = !FN(plain_svd)(m, n, a, s, w->c);
    if (u) FN(flip)(n, m, a, m, u, n);
    if (u) memcpy(vh, w->c, (size_t)(n * n) * sizeof *vh);
  } else {
    memcpy(a, x, (size_t)(m * n) * sizeof *a);
    info = !FN(plain_svd)(n, m, a, s, w->b);
    if (u) FN(flip)(m, m, w->b, m, u, m);
    if (u) memcpy(vh, a, (size_t)(m * n) * sizeof *vh);
  }
  return (int32_t)info == 0;
}

static bool FN(lstsq)(const job *l, const buffers *w, const T *x, const T *b, T *out, int32_t *rank) {
  int64_t m = l->of->m, n = l->of->n, k = l->of->k, low = m < n ? m : n, high = m < n ? n : m, info = 0, found = 0;
  T *a = w->a, rcond = (T)l->of->rcond;
  if (!FN(finite)(m * n, x)) return false;
  if (l->lapack) {
    T *right = w->right;
    FN(flip)(m, n, x, n, a, m);
    FN(flip)(m, k, b, k, right, high);
    memset(w->ints, 0, 8 * (size_t)n);  // no column comes first
    ROUTINE(gelsy, PLAIT_GELSY)(&m, &n, &k, a, &m, right, &high, w->ints, &rcond, &found, w->work, &w->lwork, &info);
    FN(flip)(k, n, right, high, out, k);
    *rank = (int32_t)found;
    return (int32_t)info == 0;
  }
  T *values = w->right, *v = w->c, *line = values + low;  // A = a diag(values) v', or of a wide A the transpose
  if (m >= n) {
    FN(flip)(m, n, x, n, a, m);
  } else {
    memcpy(a, x, (size_t)(m * n) * sizeof *a);
  }
  if (!FN(plain_svd)(high, low, a, values, v)) return false;
  memset(out, 0, (size_t)(n * k) * sizeof *out);
  for (; found < low && values[found] > rcond * values[0]; found++) {
    const T *left = (m >= n ? a : v) + found * m, *right = (m >= n ? v : a) + found * n;
    memset(line, 0, (size_t)k * sizeof *line);
    for (int64_t i = 0; i < m; i++) FN(add_scaled)(k, left[i], b + i * k, line);
    for (int64_t j = 0; j < n; j++) FN(add_scaled)(k, right[j] / values[found], line, out + j * k);
  }
  *rank = (int32_t)found;
  return true;
}

// How many elements of work LAPACK wants.
static int64_t FN(work)(const job *l) {
  int64_t m = l->of->m, n = l->of->n, k = m < n ? m : n, all = -1, info = 0, ints = 0;
  T work = 0, more = 0;
  if (l->of->op == LINALG_QR) {
    ROUTINE(geqrf, PLAIT_GEQRF)(&m, &n, NULL, &m, NULL, &work, &all, &info);
    ROUTINE(orgqr, PLAIT_ORGQR)(&m, &k, &k, NULL, &m, NULL, &more, &all, &info);
  } else if (l->of->op == LINALG_GEQRF) {
    ROUTINE(geqrf, PLAIT_GEQRF)(&m, &n, NULL, &m, NULL, &work, &all, &info);
  } else if (l->of->op == LINALG_LDL) {
    ROUTINE(sytrf, PLAIT_SYTRF)("L", &n, NULL, &n, NULL, &work, &all, &info, 1);
  } else if (l->of->op == LINALG_EIGH) {
    ROUTINE(syevd, PLAIT_SYEVD)(l->of->out[1] ? "V" : "N", "L", &n, NULL, &n, NULL, &work, &all, &ints, &all, &info, 1, 1);
  } else if (l->of->op == LINALG_SVD) {
    ROUTINE(gesdd, PLAIT_GESDD)(l->of->out[1] ? "S" : "N", &m, &n, NULL, &m, NULL, NULL, &m, NULL, &k, &work, &all, &ints, &info, 1);
  } else if (l->of->op == LINALG_LSTSQ) {
    int64_t right = l->of->k, high = m < n ? n : m;
    ROUTINE(gelsy, PLAIT_GELSY)(&m, &n, &right, NULL, &m, NULL, &high, NULL, &FN(one), &ints, &work, &all, &info);
  }
  return (int64_t)(work > more ? work : more);
}

static result FN(run)(const job *l, int64_t at, const buffers *w) {
  const struct plaitk_linalg *of = l->of;
  int64_t m = of->m, n = of->n, k = of->k, low = m < n ? m : n;
  const T *a = (const T *)of->a + at * m * n, *b = of->b ? (const T *)of->b + at * (of->op == LINALG_LSTSQ ? m : n) * k : NULL;
  T *const *out = (T *const *)of->out;
  if (of->op >= LINALG_QR && low == 0) {
    if (of->op == LINALG_LSTSQ) {
      memset(out[0] + at * n * k, 0, (size_t)(n * k) * sizeof(T));
      of->infos[at] = 0;
    } else if (of->op == LINALG_LDL) {
      of->infos[at] = 0;
    }
    return (result){0};
  }
  switch (of->op) {
    case LINALG_SOLVE:
      return FN(solve)(l, w, a, b, out[0] + at * n * k);
    case LINALG_DET:
      FN(det)(l, w, a, out[0] + at, out[1] + at, out[2] + at);
      return (result){0};
    case LINALG_TRIANGULAR: {
      T *x = out[0] + at * n * k;
      for (int64_t i = 0; i < n && !of->unit; i++) {
        if (a[i * n + i] == 0) return (result){LINALG_SINGULAR, i + 1};
      }
      memcpy(x, b, (size_t)(n * k) * sizeof *x);
      FN(triangular)(l, n, k, a, false, x, of->upper, of->unit);
      return (result){0};
    }
    case LINALG_CHOLESKY: {
      T *x = out[0] + at * n * n;
      memcpy(x, a, (size_t)(n * n) * sizeof *x);
      int64_t failed = FN(cholesky)(l, n, x);
      if (of->infos) of->infos[at] = (int32_t)failed;
      return (result){failed && !of->infos ? LINALG_NOT_POSITIVE : LINALG_OK, failed};
    }
    case LINALG_LU: {
      FN(flip)(m, n, a, n, w->a, m);
      of->infos[at] = (int32_t)FN(lu)(l, m, n, w->a, w->ints);
      FN(flip)(n, m, w->a, m, out[0] + at * m * n, n);
      memcpy(of->pivots + at * low, w->ints, (size_t)low * sizeof *w->ints);
      return (result){0};
    }
    case LINALG_QR:
      FN(qr)(l, w, a, out[0] + at * m * low, out[1] + at * low * n);
      return (result){0};
    case LINALG_GEQRF:
      FN(geqrf)(l, w, a, out[0] + at * m * n, out[1] + at * low);
      return (result){0};
    case LINALG_LDL:
      of->infos[at] = (int32_t)FN(ldl)(l, w, a, out[0] + at * n * n, of->pivots + at * n);
      return (result){0};
    case LINALG_EIGH:
      return (result){FN(eigh)(l, w, a, out[0] + at * n, out[1] ? out[1] + at * n * n : NULL) ? LINALG_OK : LINALG_DIVERGED, 0};
    case LINALG_LSTSQ:
      return (result){FN(lstsq)(l, w, a, b, out[0] + at * n * k, of->infos + at) ? LINALG_OK : LINALG_DIVERGED, 0};
    default:  // LINALG_SVD
      return (result){FN(svd)(l, w, a, out[0] + at * low, out[1] ? out[1] + at * m * low : NULL, out[1] ? out[2] + at * low * n : NULL)
                          ? LINALG_OK
                          : LINALG_DIVERGED,
                      0};
  }
}
#undef ROUTINE
#undef EPSILON
