#include "sparse.h"

#include <stdatomic.h>

// AHEAD is how many entries ahead of the sums rows of x are fetched; CHUNK is the number of products in a chunk, at least.
enum { AHEAD = 8, CHUNK = 1 << 15 };

struct csr_job {
  const struct plaitk_csr *s;
  const void *values, *a, *b;
  void *out;
  int64_t n, per_chunk;
  _Atomic int64_t bad; // the first bad row
};

static enum plaitk_csr_fault row_fault(const struct plaitk_csr *s, int64_t row, int64_t *at) {
  int64_t first = s->crow[row], last = s->crow[row + 1];
  *at = row;
  if (first < 0 || last < first || last > s->entries) return CSR_BAD_ROW;
  for (int64_t k = first; k < last; k++) {
    *at = k;
    if ((uint64_t)s->col[k] >= (uint64_t)s->columns) return CSR_BAD_COLUMN;
    if (s->order && (uint64_t)s->order[k] >= (uint64_t)s->entries) return CSR_BAD_ORDER;
  }
  return CSR_GOOD;
}

// Reports whether a row's entries lie in the matrix. It records the first row whose entries do not.
static bool row_is_good(struct csr_job *j, int64_t row) {
  int64_t at;
  if (row_fault(j->s, row, &at) == CSR_GOOD) return true;
  int64_t first = atomic_load_explicit(&j->bad, memory_order_relaxed);
  while (row < first && !atomic_compare_exchange_weak(&j->bad, &first, row)) {
  }
  return false;
}

// Reports whether the entries of all rows from row on lie in the matrix, which is faster than asking for each.
PLAIT_INLINE bool all_are_good(const struct plaitk_csr *s, int64_t row, int64_t end) {
  const int64_t *crow = s->crow, *col = s->col, *order = s->order;
  int64_t bad = crow[row] < 0 || crow[end] > s->entries;
  for (int64_t i = row; i < end; i++) bad |= crow[i + 1] < crow[i];
  if (bad) return false;
  uint64_t columns = (uint64_t)s->columns, entries = (uint64_t)s->entries;
  for (int64_t k = crow[row]; k < crow[end]; k++) bad |= (uint64_t)col[k] >= columns;
  for (int64_t k = crow[row]; order && k < crow[end]; k++) bad |= (uint64_t)order[k] >= entries;
  return !bad;
}

#define PLAIT_TEMPLATE "../kernel/sparse/c/rows.h"
#include "../../../include/plait_each_float.h"

typedef void (*leaf)(struct csr_job *j, int64_t row, int64_t end);
static const leaf products[] = {rows_f16, rows_bf16, rows_f32, rows_f64};
static const leaf samples[] = {entries_f16, entries_bf16, entries_f32, entries_f64};

static void product_chunk(void *arg, int64_t chunk) {
  struct csr_job *j = arg;
  int64_t row = chunk * j->per_chunk;
  products[j->s->dtype - PLAIT_F16](j, row, plait_min64(j->s->rows, row + j->per_chunk));
}

static void sample_chunk(void *arg, int64_t chunk) {
  struct csr_job *j = arg;
  int64_t row = chunk * j->per_chunk;
  samples[j->s->dtype - PLAIT_F16](j, row, plait_min64(j->s->rows, row + j->per_chunk));
}

static int64_t run(plait_pool *pool, struct csr_job *j, plait_task task, int64_t *at) {
  const struct plaitk_csr *s = j->s;
  int64_t work = (s->entries / plait_max64(1, s->rows) + 1) * (j->n + 4);
  j->per_chunk = plait_max64(1, CHUNK / work);
  j->bad = s->rows;
  plait_parallel(pool, plait_ceil_div(s->rows, j->per_chunk), task, j);
  return j->bad < s->rows ? row_fault(s, j->bad, at) : CSR_GOOD;
}

int64_t plaitk_sparse_matmul(plait_pool *pool, const struct plaitk_csr *s, const void *values, const void *x, void *y, int64_t n, int64_t *at) {
  struct csr_job j = {.s = s, .values = values, .a = x, .out = y, .n = n};
  return run(pool, &j, product_chunk, at);
}

int64_t plaitk_sparse_sampled(plait_pool *pool, const struct plaitk_csr *s, const void *a, const void *b, void *values, int64_t n, int64_t *at) {
  struct csr_job j = {.s = s, .a = a, .b = b, .out = values, .n = n};
  if (s->crow[0] != 0 || s->crow[s->rows] != s->entries) { // an entry outside of all rows would get no value
    *at = s->crow[0] != 0 ? 0 : s->rows - 1;
    return CSR_BAD_ROW;
  }
  return run(pool, &j, sample_chunk, at);
}
