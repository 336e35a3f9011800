#include "integers.h"

#include "../../../include/plait_kernel.h"

#define COLUMNS 512           // columns of C that a chunk sums at a time
#define CHUNK_OPS (1 << 16)   // multiplications in a chunk, at least

typedef struct integers {
  const plaitk_gemm *g;
  int dims;
  const plaitk_gemm_dim *dim;
  int64_t rows, per_chunk;  // rows of C in the whole batch, and in a chunk
} integers;

// Sums are unsigned, so that they wrap around.
#define AXPY(T)                                                                                               \
  PLAIT_CLONES static void axpy_##T(uint64_t *restrict sums, uint64_t x, const T *restrict b, int64_t n) {    \
    _Pragma("omp simd") for (int64_t j = 0; j < n; j++) sums[j] += x * (uint64_t)(int64_t)b[j];           \
  }

#define EACH_INT(DO)             \
  case PLAIT_U8: DO(uint8_t)     \
  case PLAIT_I8: DO(int8_t)      \
  case PLAIT_I16: DO(int16_t)    \
  case PLAIT_U16: DO(uint16_t)   \
  case PLAIT_I32: DO(int32_t)    \
  case PLAIT_U32: DO(uint32_t)   \
  default: DO(int64_t)

AXPY(uint8_t)
AXPY(int8_t)
AXPY(int16_t)
AXPY(uint16_t)
AXPY(int32_t)
AXPY(uint32_t)
AXPY(int64_t)

static int64_t load(const void *p, int dtype, int64_t i) {
#define LOAD(T) return (int64_t)((const T *)p)[i];
  switch (dtype) { EACH_INT(LOAD) }
}

static void store(void *p, int dtype, int64_t i, uint64_t x) {
#define STORE(T) ((T *)p)[i] = (T)x; break;
  switch (dtype) { EACH_INT(STORE) }
}

static void sum_columns(const plaitk_gemm *g, int64_t i, int64_t j0, int64_t n, uint64_t *sums) {
  for (int64_t j = 0; j < n; j++) sums[j] = 0;
  for (int64_t p = 0; p < g->k; p++) {
    uint64_t x = (uint64_t)load(g->a, g->in, i * g->a_row + p * g->a_col);
    int64_t at = p * g->b_row + j0 * g->b_col;
    if (g->b_col != 1) {
      for (int64_t j = 0; j < n; j++) sums[j] += x * (uint64_t)load(g->b, g->in, at + j * g->b_col);
    } else {
#define ADD(T) axpy_##T(sums, x, (const T *)g->b + at, n); break;
      switch (g->in) { EACH_INT(ADD) }
    }
  }
}

static void one_row(const plaitk_gemm *g, int64_t i) {
  uint64_t sums[COLUMNS];
  for (int64_t j0 = 0; j0 < g->n; j0 += COLUMNS) {
    int64_t n = g->n - j0 < COLUMNS ? g->n - j0 : COLUMNS;
    sum_columns(g, i, j0, n, sums);
    for (int64_t j = 0; j < n; j++) {
      int64_t at = i * g->c_row + (j0 + j) * g->c_col;
      uint64_t x = (uint64_t)(int64_t)g->alpha * sums[j];
      if (g->beta != 0) x += (uint64_t)(int64_t)g->beta * (uint64_t)load(g->c, g->out, at);
      if (g->bias != NULL) x += (uint64_t)load(g->bias, g->in, (j0 + j) * g->bias_step);
      store(g->c, g->out, at, x);
    }
  }
}

static void rows_chunk(void *arg, int64_t chunk) {
  const integers *w = arg;
  int64_t end = (chunk + 1) * w->per_chunk < w->rows ? (chunk + 1) * w->per_chunk : w->rows;
  int64_t size = plait_dtype_size(w->g->in);
  for (int64_t row = chunk * w->per_chunk; row < end; row++) {
    plaitk_gemm g = *w->g;
    int64_t index = row / g.m;
    for (int d = w->dims - 1; d >= 0; d--) {
      int64_t i = index % w->dim[d].size;
      index /= w->dim[d].size;
      g.a = (const char *)g.a + i * w->dim[d].a * size;
      g.b = (const char *)g.b + i * w->dim[d].b * size;
      g.c = (char *)g.c + i * w->dim[d].c * size;
    }
    one_row(&g, row % g.m);
  }
}

void plaitk_matmul_integers(plait_pool *pool, const plaitk_gemm *g, int dims, const plaitk_gemm_dim *dim) {
  integers w = {.g = g, .dims = dims, .dim = dim, .rows = g->m};
  for (int d = 0; d < dims; d++) w.rows *= dim[d].size;
  if (w.rows <= 0 || g->n <= 0) return;
  int64_t ops = g->n * (g->k < 1 ? 1 : g->k);
  w.per_chunk = (CHUNK_OPS + ops - 1) / ops;
  plait_parallel(pool, (w.rows + w.per_chunk - 1) / w.per_chunk, rows_chunk, &w);
}
