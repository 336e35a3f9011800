// The operations on one complex matrix, all by LAPACK, which takes matrices by columns; T is the type of the parts. See matrix.h.

#define C T _Complex
#define ROUTINE(type, name) ((plait_##type *)l->lapack->complex_routine[name][T_DOUBLE])

static const C FN(one) = 1;

static void FN(flip)(int64_t rows, int64_t cols, const C *from, int64_t from_row, C *to, int64_t to_row) {
  const int64_t size = sizeof(C);
  plaitk_plane p = {.n = {rows, cols}, .out = {size, to_row * size}, .in = {from_row * size, size}};
  plaitk_copying_plane(size, (char *)to, (const char *)from, &p);
}

static bool FN(finite)(int64_t n, const T *x) {
  T sum = 0;
  for (int64_t i = 0; i < n; i++) sum += x[i] * 0;
  return sum == 0;
}

static int64_t FN(lu)(const job *l, int64_t m, int64_t n, C *a, int32_t *pivots) {
  int64_t info = 0;
  ROUTINE(getrf, PLAIT_C_GETRF)(&m, &n, a, &m, pivots, &info);
  for (int64_t i = 0; l->lapack->wide && i < m && i < n; i++) pivots[i] = (int32_t)((int64_t *)(void *)pivots)[i];
  return (int32_t)info;
}

// By columns, x' is on the left of the triangle's transpose.
static void FN(triangular)(const job *l, int64_t n, int64_t k, const C *a, bool by_columns, C *x, bool upper, bool unit) {
  if (n == 0 || k == 0) return;
  ROUTINE(trsm, PLAIT_C_TRSM)("R", upper == by_columns ? "U" : "L", by_columns ? "T" : "N", unit ? "U" : "N", &k, &n, &FN(one), a, &n, x,
                              &k, 1, 1, 1, 1);
}

static result FN(solve)(const job *l, const buffers *w, const C *a, const C *b, C *x) {
  int64_t n = l->of->n, k = l->of->k;
  C *lu = w->a;
  if (n == 0) return (result){0};
  FN(flip)(n, n, a, n, lu, n);
  int64_t failed = FN(lu)(l, n, n, lu, w->ints);
  if (failed) return (result){LINALG_SINGULAR, failed};
  if (b) {
    memcpy(x, b, (size_t)(n * k) * sizeof *b);
  } else {
    memset(x, 0, (size_t)(n * n) * sizeof *x);
    for (int64_t i = 0; i < n; i++) x[i * n + i] = 1;
  }
  for (int64_t i = 0; i < n; i++) {
    C *row = x + i * k, *other = x + (w->ints[i] - 1) * k;
    for (int64_t c = 0; row != other && c < k; c++) {
      C t = row[c];
      row[c] = other[c];
      other[c] = t;
    }
  }
  FN(triangular)(l, n, k, lu, true, x, false, true);
  FN(triangular)(l, n, k, lu, true, x, true, false);
  return (result){0};
}

static void FN(det)(const job *l, const buffers *w, const C *a, C *det, C *sign, T *size) {
  int64_t n = l->of->n;
  C *lu = w->a;
  if (n > 0) {
    FN(flip)(n, n, a, n, lu, n);
    FN(lu)(l, n, n, lu, w->ints);
  }
  double _Complex product = 1, s = 1;
  double logs = 0;
  for (int64_t i = 0; i < n; i++) {
    double _Complex d = w->ints[i] == i + 1 ? lu[i * n + i] : -lu[i * n + i];
    double r = cabs(d);
    product *= d;
    s = r == 0 ? 0 : s * (d / r);
    logs += log(r);
  }
  *det = (C)product;
  *sign = (C)s;
  *size = (T)logs;
}

static int64_t FN(cholesky)(const job *l, int64_t n, C *a) {
  int64_t failed = 0;
  if (n > 0) ROUTINE(potrf, PLAIT_C_POTRF)("U", &n, a, &n, &failed, 1);
  failed = (int32_t)failed;
  for (int64_t i = 0; i < n && !failed; i++) failed = ((T *)(a + i * n + i))[0] > 0 ? 0 : i + 1;  // NaN
  for (int64_t i = 0; i < n; i++) memset(a + i * n + i + 1, 0, (size_t)(n - i - 1) * sizeof *a);
  return failed;
}

static void FN(qr)(const job *l, const buffers *w, const C *x, C *q, C *r) {
  int64_t m = l->of->m, n = l->of->n, k = m < n ? m : n, info = 0;
  C *a = w->a;
  FN(flip)(m, n, x, n, a, m);
  ROUTINE(geqrf, PLAIT_C_GEQRF)(&m, &n, a, &m, w->c, w->work, &w->lwork, &info);
  FN(flip)(n, k, a, m, r, n);
  for (int64_t i = 1; i < k; i++) memset(r + i * n, 0, (size_t)i * sizeof *r);
  ROUTINE(orgqr, PLAIT_C_UNGQR)(&m, &k, &k, a, &m, w->c, w->work, &w->lwork, &info);
  FN(flip)(k, m, a, m, q, k);
}

static void FN(geqrf)(const job *l, const buffers *w, const C *x, C *out, C *tau) {
  int64_t m = l->of->m, n = l->of->n, info = 0;
  C *a = w->a;
  FN(flip)(m, n, x, n, a, m);
  ROUTINE(geqrf, PLAIT_C_GEQRF)(&m, &n, a, &m, tau, w->work, &w->lwork, &info);
  FN(flip)(n, m, a, m, out, n);
}

static plait_sytrf *FN(ldl_routine)(const job *l) {
  return l->of->hermitian ? ROUTINE(sytrf, PLAIT_C_HETRF) : ROUTINE(sytrf, PLAIT_C_SYTRF);
}

static int64_t FN(ldl)(const job *l, const buffers *w, const C *x, C *out, int32_t *pivots) {
  int64_t n = l->of->n, info = 0;
  C *a = w->a;
  FN(flip)(n, n, x, n, a, n);
  FN(ldl_routine)(l)("L", &n, a, &n, w->ints, w->work, &w->lwork, &info, 1);
  for (int64_t i = 0; l->lapack->wide && i < n; i++) w->ints[i] = (int32_t)((int64_t *)(void *)w->ints)[i];
  for (int64_t i = 0; i < n; i++) memset(a + i * n, 0, (size_t)i * sizeof *a);
  FN(flip)(n, n, a, n, out, n);
  memcpy(pivots, w->ints, (size_t)n * sizeof *pivots);
  return (int32_t)info;
}

static bool FN(eigh)(const job *l, const buffers *w, const C *x, T *values, C *vectors) {
  int64_t n = l->of->n, info = 0;
  C *a = w->a;
  FN(flip)(n, n, x, n, a, n);
  if (!FN(finite)(2 * n * n, (const T *)a)) return false;
  ROUTINE(heevd, PLAIT_C_HEEVD)(vectors ? "V" : "N", "L", &n, a, &n, values, w->work, &w->lwork, w->rwork, &w->lrwork, w->ints, &w->lints,
                                &info, 1, 1);
  if (vectors) FN(flip)(n, n, a, n, vectors, n);
  return (int32_t)info == 0;
}

static bool FN(svd)(const job *l, const buffers *w, const C *x, T *s, C *u, C *vh) {
  int64_t m = l->of->m, n = l->of->n, k = m < n ? m : n, info = 0;
  C *a = w->a;
  if (!FN(finite)(2 * m * n, (const T *)x)) return false;
  FN(flip)(m, n, x, n, a, m);
  ROUTINE(complex_gesdd, PLAIT_C_GESDD)(u ? "S" : "N", &m, &n, a, &m, s, w->b, &m, w->c, &k, w->work, &w->lwork, w->rwork, w->ints, &info, 1);
  if (u) FN(flip)(k, m, w->b, m, u, k);
  if (u) FN(flip)(n, k, w->c, k, vh, n);
  return (int32_t)info == 0;
}

static bool FN(lstsq)(const job *l, const buffers *w, const C *x, const C *b, C *out, int32_t *rank) {
  int64_t m = l->of->m, n = l->of->n, k = l->of->k, high = m < n ? n : m, info = 0, found = 0;
  C *a = w->a, *right = w->right;
  T rcond = (T)l->of->rcond;
  if (!FN(finite)(2 * m * n, (const T *)x)) return false;
  FN(flip)(m, n, x, n, a, m);
  FN(flip)(m, k, b, k, right, high);
  memset(w->ints, 0, 8 * (size_t)n);  // no column comes first
  ROUTINE(complex_gelsy, PLAIT_C_GELSY)(&m, &n, &k, a, &m, right, &high, w->ints, &rcond, &found, w->work, &w->lwork, w->rwork, &info);
  FN(flip)(k, n, right, high, out, k);
  *rank = (int32_t)found;
  return (int32_t)info == 0;
}

static bool FN(eig)(const job *l, const buffers *w, const void *x, C *values, C *vectors) {
  int64_t n = l->of->n, info = 0, one = 1;
  const char *wanted = vectors ? "V" : "N";
  if (!FN(finite)((l->of->real ? 1 : 2) * n * n, x)) return false;
  if (!l->of->real) {
    FN(flip)(n, n, x, n, w->a, n);
    ROUTINE(complex_geev, PLAIT_C_GEEV)("N", wanted, &n, w->a, &n, values, NULL, &one, w->c, &n, w->work, &w->lwork, w->rwork, &info, 1, 1);
    if (vectors) FN(flip)(n, n, w->c, n, vectors, n);
    return (int32_t)info == 0;
  }
  T *a = w->a, *v = w->c, *re = w->rwork, *im = re + n;
  for (int64_t i = 0; i < n; i++) {
    for (int64_t j = 0; j < n; j++) a[j * n + i] = ((const T *)x)[i * n + j];
  }
  ((plait_geev *)l->lapack->routine[PLAIT_GEEV][T_DOUBLE])("N", wanted, &n, a, &n, re, im, NULL, &one, v, &n, w->work, &w->lwork, &info, 1, 1);
  for (int64_t j = 0; j < n; j++) {
    values[j] = re[j] + im[j] * (C)I;
    // A column is the real part of the vectors of a pair, and the next one the imaginary part of the first.
    for (int64_t i = 0; vectors && i < n; i++) {
      vectors[i * n + j] = im[j] == 0 ? v[j * n + i] : im[j] > 0 ? v[j * n + i] + v[(j + 1) * n + i] * (C)I : v[(j - 1) * n + i] - v[j * n + i] * (C)I;
    }
  }
  return (int32_t)info == 0;
}

// How many elements of work LAPACK wants, and of real work.
static void FN(work)(job *l) {
  int64_t m = l->of->m, n = l->of->n, k = m < n ? m : n, high = m < n ? n : m, all = -1, info = 0, ints = 0, one = 1;
  C work[2] = {0}, more[2] = {0};
  T real[2] = {0};
  if (l->of->op == LINALG_QR) {
    ROUTINE(geqrf, PLAIT_C_GEQRF)(&m, &n, NULL, &m, NULL, work, &all, &info);
    ROUTINE(orgqr, PLAIT_C_UNGQR)(&m, &k, &k, NULL, &m, NULL, more, &all, &info);
  } else if (l->of->op == LINALG_GEQRF) {
    ROUTINE(geqrf, PLAIT_C_GEQRF)(&m, &n, NULL, &m, NULL, work, &all, &info);
  } else if (l->of->op == LINALG_LDL) {
    FN(ldl_routine)(l)("L", &n, NULL, &n, NULL, work, &all, &info, 1);
  } else if (l->of->op == LINALG_EIGH) {
    ROUTINE(heevd, PLAIT_C_HEEVD)(l->of->out[1] ? "V" : "N", "L", &n, NULL, &n, NULL, work, &all, real, &all, &ints, &all, &info, 1, 1);
    l->lrwork = (int64_t)real[0];
  } else if (l->of->op == LINALG_SVD) {
    ROUTINE(complex_gesdd, PLAIT_C_GESDD)(l->of->out[1] ? "S" : "N", &m, &n, NULL, &m, NULL, NULL, &m, NULL, &k, work, &all, real, &ints, &info, 1);
    l->lrwork = k * max64(5 * k + 7, 2 * high + 2 * k + 1);
  } else if (l->of->op == LINALG_LSTSQ) {
    int64_t right = l->of->k;
    ROUTINE(complex_gelsy, PLAIT_C_GELSY)(&m, &n, &right, NULL, &m, NULL, &high, NULL, real, &ints, work, &all, real, &info);
    l->lrwork = 2 * n;
  } else if (l->of->real) {
    ((plait_geev *)l->lapack->routine[PLAIT_GEEV][T_DOUBLE])("N", l->of->out[1] ? "V" : "N", &n, NULL, &n, NULL, NULL, NULL, &one, NULL, &n, work,
                                                             &all, &info, 1, 1);
    l->lrwork = 2 * n;
  } else {
    ROUTINE(complex_geev, PLAIT_C_GEEV)("N", l->of->out[1] ? "V" : "N", &n, NULL, &n, NULL, NULL, &one, NULL, &n, work, &all, real, &info, 1, 1);
    l->lrwork = 2 * n;
  }
  T first = ((T *)work)[0], second = ((T *)more)[0];
  l->lwork = (int64_t)(first > second ? first : second);
}

static result FN(run)(const job *l, int64_t at, const buffers *w) {
  const struct plaitk_linalg *of = l->of;
  int64_t m = of->m, n = of->n, k = of->k, low = m < n ? m : n;
  const C *a = (const C *)of->a + at * m * n, *b = of->b ? (const C *)of->b + at * (of->op == LINALG_LSTSQ ? m : n) * k : NULL;
  void *const *out = of->out;
  if (of->op >= LINALG_QR && low == 0) {
    if (of->op == LINALG_LDL || of->op == LINALG_LSTSQ) of->infos[at] = 0;
    if (of->op == LINALG_LSTSQ) memset((C *)out[0] + at * n * k, 0, (size_t)(n * k) * sizeof(C));
    return (result){0};
  }
  bool done = true;
  switch (of->op) {
    case LINALG_SOLVE:
      return FN(solve)(l, w, a, b, (C *)out[0] + at * n * k);
    case LINALG_DET:
      FN(det)(l, w, a, (C *)out[0] + at, (C *)out[1] + at, (T *)out[2] + at);
      return (result){0};
    case LINALG_TRIANGULAR: {
      C *x = (C *)out[0] + at * n * k;
      for (int64_t i = 0; i < n && !of->unit; i++) {
        if (a[i * n + i] == 0) return (result){LINALG_SINGULAR, i + 1};
      }
      memcpy(x, b, (size_t)(n * k) * sizeof *x);
      FN(triangular)(l, n, k, a, false, x, of->upper, of->unit);
      return (result){0};
    }
    case LINALG_CHOLESKY: {
      C *x = (C *)out[0] + at * n * n;
      memcpy(x, a, (size_t)(n * n) * sizeof *x);
      int64_t failed = FN(cholesky)(l, n, x);
      if (of->infos) of->infos[at] = (int32_t)failed;
      return (result){failed && !of->infos ? LINALG_NOT_POSITIVE : LINALG_OK, failed};
    }
    case LINALG_LU: {
      if (low == 0) {
        of->infos[at] = 0;
        return (result){0};
      }
      FN(flip)(m, n, a, n, w->a, m);
      of->infos[at] = (int32_t)FN(lu)(l, m, n, w->a, w->ints);
      FN(flip)(n, m, w->a, m, (C *)out[0] + at * m * n, n);
      memcpy(of->pivots + at * low, w->ints, (size_t)low * sizeof *w->ints);
      return (result){0};
    }
    case LINALG_QR:
      FN(qr)(l, w, a, (C *)out[0] + at * m * low, (C *)out[1] + at * low * n);
      return (result){0};
    case LINALG_GEQRF:
      FN(geqrf)(l, w, a, (C *)out[0] + at * m * n, (C *)out[1] + at * low);
      return (result){0};
    case LINALG_LDL:
      of->infos[at] = (int32_t)FN(ldl)(l, w, a, (C *)out[0] + at * n * n, of->pivots + at * n);
      return (result){0};
    case LINALG_LSTSQ:
      done = FN(lstsq)(l, w, a, b, (C *)out[0] + at * n * k, of->infos + at);
      break;
    case LINALG_EIGH:
      done = FN(eigh)(l, w, a, (T *)out[0] + at * n, out[1] ? (C *)out[1] + at * n * n : NULL);
      break;
    case LINALG_SVD:
      done = FN(svd)(l, w, a, (T *)out[0] + at * low, out[1] ? (C *)out[1] + at * m * low : NULL, out[1] ? (C *)out[2] + at * low * n : NULL);
      break;
    default: {  // LINALG_EIG
      const void *x = of->real ? (const void *)((const T *)of->a + at * n * n) : a;
      done = FN(eig)(l, w, x, (C *)out[0] + at * n, out[1] ? (C *)out[1] + at * n * n : NULL);
    }
  }
  return (result){done ? LINALG_OK : LINALG_DIVERGED, 0};
}
#undef ROUTINE
#undef C
