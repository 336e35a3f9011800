#include "linalg.h"

#include <math.h>
#include <stdatomic.h>

#include "../../../include/plait_kernel.h"
#include "../../../include/plait_slots.h"

#define CHUNK_OPS 30000  // multiplications in a chunk

struct job {
  const struct plaitk_linalg *l;
  int64_t per_chunk, chunks;
  plait_slots slots;    // scratch for the matrices that a chunk works on
  atomic_llong failed;  // the first matrix that failed and its status: matrix * 8 + status
};

static int64_t min64(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t max64(int64_t a, int64_t b) { return a > b ? a : b; }

static void load(const struct plaitk_linalg *l, const void *from, int64_t at, int64_t n, double *to) {
  for (int64_t i = 0; i < n; i++) to[i] = l->dtype == PLAIT_F64 ? ((const double *)from)[at + i] : ((const float *)from)[at + i];
}

// Stores rows x cols elements with strides row_step and col_step.
static void store(const struct plaitk_linalg *l, int out, int64_t matrix, int64_t rows, int64_t cols, const double *from,
                  int64_t row_step, int64_t col_step) {
  int64_t at = matrix * rows * cols;
  for (int64_t i = 0; i < rows; i++) {
    for (int64_t j = 0; j < cols; j++) {
      double v = from[i * row_step + j * col_step];
      if (l->dtype == PLAIT_F64) {
        ((double *)l->out[out])[at + i * cols + j] = v;
      } else {
        ((float *)l->out[out])[at + i * cols + j] = (float)v;
      }
    }
  }
}

// x -= f * y
static void subtract(int64_t n, double f, const double *y, double *x) {
#pragma omp simd
  for (int64_t i = 0; i < n; i++) x[i] -= f * y[i];
}

// Solves for the rows of x, k elements each, with a triangle of a.
static int substitute(int64_t n, int64_t k, const double *a, double *x, bool upper, bool unit) {
  for (int64_t step = 0; step < n; step++) {
    int64_t i = upper ? n - 1 - step : step;
    for (int64_t j = upper ? i + 1 : 0; j < (upper ? n : i); j++) subtract(k, a[i * n + j], x + j * k, x + i * k);
    if (unit) continue;
    if (a[i * n + i] == 0) return LINALG_SINGULAR;
    for (int64_t c = 0; c < k; c++) x[i * k + c] /= a[i * n + i];
  }
  return LINALG_OK;
}

static int run(const struct plaitk_linalg *l, int64_t at, double *w) {
  int64_t m = l->m, n = l->n, k = l->k, low = min64(m, n);
  double *a = w, *x = a + m * n, *rest = x + max64(n * k, m * n + n * n);
  load(l, l->a, at * m * n, m * n, a);
  int status, sign;
  switch (l->op) {
    case LINALG_SOLVE:
      if (l->b != NULL) {
        load(l, l->b, at * n * k, n * k, x);
      } else {
        memset(x, 0, (size_t)(n * n) * sizeof *x);
        for (int64_t i = 0; i < n; i++) x[i * n + i] = 1;
      }
      if (plaitk_linalg_lu(n, n, a, (int64_t *)rest, &sign) != 0) return LINALG_SINGULAR;
      for (int64_t i = 0; i < n; i++) {
        int64_t p = ((int64_t *)rest)[i];
        for (int64_t c = 0; p != i && c < k; c++) {
          double t = x[i * k + c];
          x[i * k + c] = x[p * k + c];
          x[p * k + c] = t;
        }
      }
      substitute(n, k, a, x, false, true);
      status = substitute(n, k, a, x, true, false);
      store(l, 0, at, n, k, x, k, 1);
      return status;
    case LINALG_DET: {
      plaitk_linalg_lu(n, n, a, (int64_t *)rest, &sign);
      double det = sign, size = 0;
      for (int64_t i = 0; i < n; i++) {
        double d = a[i * n + i];
        det *= d;
        size += log(fabs(d));
        sign = d == 0 ? 0 : d < 0 ? -sign : sign;
      }
      double s = isnan(det) ? det : sign;
      store(l, 0, at, 1, 1, &det, 0, 0);
      store(l, 1, at, 1, 1, &s, 0, 0);
      store(l, 2, at, 1, 1, &size, 0, 0);
      return LINALG_OK;
    }
    case LINALG_TRIANGULAR:
      load(l, l->b, at * n * k, n * k, x);
      status = substitute(n, k, a, x, l->upper, l->unit);
      store(l, 0, at, n, k, x, k, 1);
      return status;
    case LINALG_CHOLESKY: {
      int64_t failed = plaitk_linalg_cholesky(n, a);
      store(l, 0, at, n, n, a, n, 1);
      if (l->infos) l->infos[at] = (int32_t)failed;
      return failed != 0 && !l->infos ? LINALG_NOT_POSITIVE : LINALG_OK;
    }
    case LINALG_LU:
      l->infos[at] = (int32_t)plaitk_linalg_lu(m, n, a, (int64_t *)rest, &sign);
      store(l, 0, at, m, n, a, n, 1);
      for (int64_t i = 0; i < low; i++) l->pivots[at * low + i] = (int32_t)(((int64_t *)rest)[i] + 1);
      return LINALG_OK;
    case LINALG_QR: {
      double *columns = x, *q = rest, *reflections = q + low * m;
      for (int64_t i = 0; i < m; i++) {
        for (int64_t j = 0; j < n; j++) columns[j * m + i] = a[i * n + j];
      }
      plaitk_linalg_qr(m, n, columns, q, reflections);
      for (int64_t j = 0; j < n; j++) {
        for (int64_t i = j + 1; i < m; i++) columns[j * m + i] = 0;
      }
      store(l, 0, at, m, low, q, 1, m);
      store(l, 1, at, low, n, columns, 1, m);
      return LINALG_OK;
    }
    case LINALG_EIGH:
      if ((status = plaitk_linalg_eigh(n, a, rest, x)) != LINALG_OK) return status;
      store(l, 0, at, 1, n, rest, 0, 1);
      store(l, 1, at, n, n, x, 1, n);
      return LINALG_OK;
    default: {  // LINALG_SVD: a wide A is transposed
      bool wide = m < n;
      int64_t tall = max64(m, n);
      double *v = x + m * n, *lines = a;
      if (!wide) {
        lines = x;
        for (int64_t i = 0; i < m; i++) {
          for (int64_t j = 0; j < n; j++) lines[j * m + i] = a[i * n + j];
        }
      }
      if ((status = plaitk_linalg_svd(tall, low, lines, rest, v)) != LINALG_OK) return status;
      store(l, 1, at, 1, low, rest, 0, 1);
      if (wide) {
        store(l, 0, at, m, low, v, 1, low);
        store(l, 2, at, low, n, lines, n, 1);
      } else {
        store(l, 0, at, m, low, lines, 1, m);
        store(l, 2, at, low, n, v, low, 1);
      }
      return LINALG_OK;
    }
  }
}

static void fail(struct job *j, int64_t at, int status) {
  long long mine = at * 8 + status, old = atomic_load(&j->failed);
  while (mine < old && !atomic_compare_exchange_weak(&j->failed, &old, mine)) {
  }
}

static void run_chunk(void *arg, int64_t chunk) {
  struct job *j = arg;
  const struct plaitk_linalg *l = j->l;
  int64_t first = chunk * j->per_chunk, slot = plait_slot_acquire(&j->slots);
  for (int64_t at = first; at < min64(first + j->per_chunk, l->batch); at++) {
    int status = run(l, at, (double *)(void *)(j->slots.bytes + slot * j->slots.size));
    if (status != LINALG_OK) fail(j, at, status);
  }
  plait_slot_release(&j->slots, slot);
}

static int64_t plan(struct job *j, const plait_pool *pool, char *scratch) {
  const struct plaitk_linalg *l = j->l;
  int64_t low = min64(l->m, l->n);
  int64_t size = l->m * l->n + max64(l->n * l->k, l->m * l->n + l->n * l->n) + 2 * low * l->m + l->m + l->n;
  j->per_chunk = max64(1, CHUNK_OPS / max64(1, l->m * l->n * (l->n + l->k)));
  j->chunks = (l->batch + j->per_chunk - 1) / j->per_chunk;
  char *at = scratch;
  plait_slots_plan(&j->slots, &at, min64(plait_pool_threads(pool), j->chunks), size * (int64_t)sizeof(double), scratch != NULL);
  return (intptr_t)at - (intptr_t)scratch;
}

int64_t plaitk_linalg_scratch(const plait_pool *pool, const struct plaitk_linalg *l) {
  struct job j = {.l = l};
  return plan(&j, pool, NULL);
}

int32_t plaitk_linalg_run(plait_pool *pool, const struct plaitk_linalg *l, int64_t *at) {
  struct job j = {.l = l};
  atomic_init(&j.failed, INT64_MAX);
  plan(&j, pool, l->scratch);
  plait_parallel(pool, j.chunks, run_chunk, &j);
  long long failed = atomic_load(&j.failed);
  if (failed == INT64_MAX) return LINALG_OK;
  *at = failed / 8;
  return (int32_t)(failed % 8);
}

int64_t plaitk_linalg_permutation(int64_t batch, int64_t k, int64_t m, const int32_t *pivots, int64_t *rows) {
  for (int64_t at = 0; at < batch; at++, pivots += k, rows += m) {
    for (int64_t i = 0; i < m; i++) rows[i] = i;
    for (int64_t i = 0; i < k; i++) {
      int64_t p = pivots[i] - 1;
      if (p < 0 || p >= m) return at;
      int64_t t = rows[i];
      rows[i] = rows[p];
      rows[p] = t;
    }
  }
  return -1;
}
