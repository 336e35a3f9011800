#include <stdatomic.h>

#include "gemm.h"

#define TINY_OPS (1 << 18)   // multiplications of a product that is not worth cutting
#define SMALL_OPS (4 << 20)  // of one that need not be cut if there are MANY
#define MANY 16
#define CHUNK_OPS (1 << 16)  // of a chunk, at least

typedef struct batch {
  plaitk_gemm_engine engine;
  const plaitk_gemm *g;
  int dims;
  plaitk_gemm_dim dim[PLAIT_MAX_DIMS];
  int64_t products, of_chunk;
  atomic_int_fast64_t status;
} batch;

static int64_t run_one(const batch *b, plait_pool *pool, int64_t index) {
  plaitk_gemm g = *b->g;
  int64_t in_size = g.in == PLAIT_F64 ? 8 : g.in == PLAIT_F32 ? 4 : 2;
  int64_t out_size = g.out == PLAIT_F64 ? 8 : g.out == PLAIT_F32 ? 4 : 2;
  for (int d = b->dims - 1; d >= 0; d--) {
    int64_t i = index % b->dim[d].size;
    index /= b->dim[d].size;
    g.a = (const char *)g.a + i * b->dim[d].a * in_size;
    g.b = (const char *)g.b + i * b->dim[d].b * in_size;
    g.c = (char *)g.c + i * b->dim[d].c * out_size;
  }
  return b->engine(pool, &g);
}

static void batch_chunk(void *arg, int64_t chunk) {
  batch *b = arg;
  int64_t end = least((chunk + 1) * b->of_chunk, b->products);
  for (int64_t i = chunk * b->of_chunk; i < end; i++) {
    int64_t status = run_one(b, NULL, i);
    if (status != PLAITK_GEMM_OK) atomic_store(&b->status, status);
  }
}

static _Atomic plaitk_gemm_engine chosen = NULL;

void plaitk_gemm_set_engine(plaitk_gemm_engine engine) { atomic_store(&chosen, engine); }

int64_t plaitk_gemm_batched(plait_pool *pool, const plaitk_gemm *g, int dims, const plaitk_gemm_dim *dim) {
  plaitk_gemm_engine engine = atomic_load_explicit(&chosen, memory_order_relaxed);
  if (engine == NULL) engine = plaitk_gemm_run;
  plaitk_gemm whole = *g;
  batch b = {.engine = engine, .g = &whole, .products = 1};
  for (int d = 0; d < dims; d++) {
    b.products *= dim[d].size;
    if (dim[d].size != 1) b.dim[b.dims++] = dim[d];
  }
  // A batch that shares B, and whose matrices A and C follow each other, is one product with more rows.
  while (b.dims > 0) {
    const plaitk_gemm_dim *last = &b.dim[b.dims - 1];
    if (last->b != 0 || last->a != whole.m * whole.a_row || last->c != whole.m * whole.c_row) break;
    whole.m *= last->size;
    b.products /= most(1, last->size);
    b.dims--;
  }
  if (b.products == 1) return engine(pool, &whole);
  int64_t ops = most(1, whole.m * whole.n * most(1, whole.k));
  if (ops <= TINY_OPS || (ops <= SMALL_OPS && b.products >= MANY)) {
    b.of_chunk = ceil_div(CHUNK_OPS, ops);
    plait_parallel(pool, ceil_div(b.products, b.of_chunk), batch_chunk, &b);
    return atomic_load(&b.status);
  }
  for (int64_t i = 0; i < b.products; i++) {
    int64_t status = run_one(&b, pool, i);
    if (status != PLAITK_GEMM_OK) return status;
  }
  return PLAITK_GEMM_OK;
}
