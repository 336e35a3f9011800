#include "linalg.h"

#include <complex.h>
#include <float.h>
#include <math.h>
#include <stdatomic.h>

#include "../../../include/plait_kernel.h"
#include "../../../include/plait_slots.h"
#include "../../copying/c/copying.h"

// Roots set no errno here, so that loops of them can be vectors.
float sqrtf(float) __attribute__((const));
double sqrt(double) __attribute__((const));

#define CHUNK_OPS 30000  // multiplications in a chunk

// Up to these numbers of rows or columns the plain loops take less time than LAPACK's calls.
enum { SMALL_LU = 8, SMALL_TRIANGLE = 8, SMALL_CHOLESKY = 8, SMALL_QR = 8, SMALL_INVERSE = 32, SMALL_VALUES = 4 };

// Matrices of up to MOST_ABREAST rows are computed ABREAST at a time, as many as there are: a matrix has the same result in every stack.
enum { ABREAST = 16, MOST_ABREAST = 8, SWEEPS = 40 };

// Scratch memory for one matrix.
typedef struct {
  void *a, *b, *c;  // A; matrices as large as U and as V'
  void *right;      // B, with as many rows as X if that has more
  void *work, *rwork;
  int32_t *ints;
  int64_t lwork, lints, lrwork;
} buffers;

typedef struct {
  const struct plaitk_linalg *of;
  const plaitk_lapack *lapack;
  int64_t per_chunk, chunks, lwork, lrwork;
  plait_slots slots;            // scratch for the matrices that a chunk works on
  atomic_int_least64_t failed;  // the first matrix that failed, and its status and row: (matrix * statuses + status) << 32 | row
} job;

typedef struct {
  int32_t status;
  int64_t row;
} result;

static int64_t min64(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t max64(int64_t a, int64_t b) { return a > b ? a : b; }

#define PASTE_(a, b) a##_##b
#define PASTE(a, b) PASTE_(a, b)
#define FN(name) PASTE(name, SUFFIX)

#define SUFFIX f32
#define T float
#define T_DOUBLE 0
#define ABS fabsf
#define SQRT sqrtf
#include "matrix.h"
#undef SUFFIX
#undef T
#undef T_DOUBLE
#undef ABS
#undef SQRT

#define SUFFIX f64
#define T double
#define T_DOUBLE 1
#define ABS fabs
#define SQRT sqrt
#include "matrix.h"
#undef SUFFIX
#undef T
#undef T_DOUBLE

#define SUFFIX c64
#define T float
#define T_DOUBLE 0
#include "complex_matrix.h"
#undef SUFFIX
#undef T
#undef T_DOUBLE

#define SUFFIX c128
#define T double
#define T_DOUBLE 1
#include "complex_matrix.h"

// The memory of a matrix, from *at on.
static buffers carve(const job *j, char **at) {
  const struct plaitk_linalg *l = j->of;
  int64_t low = min64(l->m, l->n), part = l->dtype == PLAIT_F64 ? 8 : 4, size = part * (l->is_complex ? 2 : 1);
  buffers w = {.lwork = max64(j->lwork, 1), .lints = 3 + 5 * low, .lrwork = max64(j->lrwork, 1)};
  w.a = plait_carve(at, l->m * l->n * size);
  w.ints = plait_carve(at, 8 * max64(l->n, max64(w.lints, 8 * low)));  // 64-bit integers, if LAPACK wants them
  if (l->op < LINALG_QR) return w;
  w.b = plait_carve(at, l->m * low * size);
  w.c = plait_carve(at, max64(l->m, l->n) * low * size);
  w.work = plait_carve(at, w.lwork * size);
  w.rwork = plait_carve(at, w.lrwork * part);
  if (l->op == LINALG_LSTSQ) w.right = plait_carve(at, (max64(l->m, l->n) * (l->k + 1) + l->k) * size);
  return w;
}

static bool is_abreast(const struct plaitk_linalg *l) {
  return (l->op == LINALG_CHOLESKY || l->op == LINALG_EIGH) && !l->is_complex && l->n <= MOST_ABREAST;
}

#define RUN_ABREAST(SUFFIX, T)                                                                                \
  static uint32_t abreast_##SUFFIX(const struct plaitk_linalg *l, int64_t at, int64_t count) {               \
    int64_t n = l->n;                                                                                         \
    const T *a = (const T *)l->a + at * n * n;                                                                \
    if (l->op == LINALG_CHOLESKY) return cholesky_abreast_##SUFFIX(n, count, a, (T *)l->out[0] + at * n * n); \
    T *vectors = l->out[1] ? (T *)l->out[1] + at * n * n : NULL;                                              \
    return eigh_abreast_##SUFFIX(n, count, a, (T *)l->out[0] + at * n, vectors);                              \
  }
RUN_ABREAST(f32, float)
RUN_ABREAST(f64, double)

// Runs the operation for some matrices of a stack, and returns a bit for each that is left to do.
static uint32_t run_abreast(const struct plaitk_linalg *l, int64_t at, int64_t count) {
  if (l->infos) memset(l->infos + at, 0, (size_t)count * sizeof *l->infos);
  return l->dtype == PLAIT_F64 ? abreast_f64(l, at, count) : abreast_f32(l, at, count);
}

static void run_chunk(void *arg, int64_t chunk) {
  job *j = arg;
  const struct plaitk_linalg *l = j->of;
  int64_t slot = plait_slot_acquire(&j->slots);
  char *memory = j->slots.bytes + slot * j->slots.size;
  buffers w = carve(j, &memory);
  int64_t last = min64((chunk + 1) * j->per_chunk, l->batch);
  uint32_t left = 0;
  for (int64_t at = chunk * j->per_chunk, i = 0; at < last; at++, i++) {
    if (is_abreast(l)) {
      if (i % ABREAST == 0) left = run_abreast(l, at, min64(ABREAST, last - at));
      if (!(left >> i % ABREAST & 1)) continue;
    }
    bool wide = l->dtype == PLAIT_F64;
    result r = l->is_complex ? (wide ? run_c128(j, at, &w) : run_c64(j, at, &w)) : wide ? run_f64(j, at, &w) : run_f32(j, at, &w);
    if (r.status == LINALG_OK) continue;
    int64_t mine = (at * LINALG_STATUSES + r.status) << 32 | r.row, old = atomic_load(&j->failed);
    while (mine < old && !atomic_compare_exchange_weak(&j->failed, &old, mine)) {
    }
  }
  plait_slot_release(&j->slots, slot);
}

static int64_t plan(job *j, const plait_pool *pool, char *scratch) {
  const struct plaitk_linalg *l = j->of;
  j->lapack = l->lapack;
  bool ask = j->lapack && l->op >= LINALG_QR && l->m > 0 && l->n > 0;
  if (ask && l->is_complex) {
    if (l->dtype == PLAIT_F64) {
      work_c128(j);
    } else {
      work_c64(j);
    }
  } else {
    j->lwork = !ask ? 0 : l->dtype == PLAIT_F64 ? work_f64(j) : work_f32(j);
  }
  char *size = NULL, *at = scratch;
  carve(j, &size);
  j->per_chunk = max64(1, CHUNK_OPS / max64(1, l->m * l->n * (l->n + l->k)));
  if (is_abreast(l)) j->per_chunk = (j->per_chunk + ABREAST - 1) / ABREAST * ABREAST;
  j->chunks = (l->batch + j->per_chunk - 1) / j->per_chunk;
  plait_slots_plan(&j->slots, &at, min64(plait_pool_threads(pool), j->chunks), (intptr_t)size, scratch != NULL);
  return (intptr_t)at - (intptr_t)scratch;
}

int64_t plaitk_linalg_scratch(const plait_pool *pool, const struct plaitk_linalg *l) {
  job j = {.of = l};
  return plan(&j, pool, NULL);
}

int32_t plaitk_linalg_run(plait_pool *pool, const struct plaitk_linalg *l, int64_t at[2]) {
  job j = {.of = l};
  atomic_init(&j.failed, INT64_MAX);
  plan(&j, pool, l->scratch);
  plait_parallel_parts(pool, j.chunks, run_chunk, &j);
  int64_t failed = atomic_load(&j.failed);
  if (failed == INT64_MAX) return LINALG_OK;
  at[0] = (failed >> 32) / LINALG_STATUSES;
  at[1] = failed & INT32_MAX;
  return (int32_t)((failed >> 32) % LINALG_STATUSES);
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
