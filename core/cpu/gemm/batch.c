#include <stdatomic.h>

#include "gemm.h"

#define TINY_OPS (1 << 18)   // multiplications up to which a product of a batch runs on one thread
#define SMALL_OPS (4 << 20)  // the same, if the batch has at least MANY products
#define MANY 16
#define SHORT_DOT 4           // elements of rows whose products with a vector are tiny products, at most
#define CHUNK_OPS (1 << 16)  // multiplications of a chunk, at least

typedef struct batch {
  const plaitk_gemm_engine *engine;
  plaitk_gemm g;  // the first product
  int dims;
  plaitk_gemm_dim dim[PLAIT_MAX_DIMS];
  int64_t products, per_chunk, chunks;
  bool tiny;  // see gemm_tiny
  plait_slots slots;  // scratch memory for products that run concurrently
} batch;

// Runs product `index` of the batch.
static void run_one(const batch *b, plait_pool *pool, int64_t index, void *scratch) {
  plaitk_gemm g = b->g;
  int64_t in_size = plait_dtype_size(g.in), out_size = plait_dtype_size(g.out);
  int64_t a_size = g.rounded & PLAITK_GEMM_A ? 4 : in_size, b_size = g.rounded & PLAITK_GEMM_B ? 4 : in_size;
  for (int d = b->dims - 1; d >= 0; d--) {
    int64_t i = index % b->dim[d].size;
    index /= b->dim[d].size;
    g.a = (const char *)g.a + i * b->dim[d].a * a_size;
    g.b = (const char *)g.b + i * b->dim[d].b * b_size;
    g.c = (char *)g.c + i * b->dim[d].c * out_size;
  }
  b->engine->run(pool, &g, scratch);
}

static void batch_chunk(void *arg, int64_t chunk) {
  const batch *b = arg;
  int64_t end = min64((chunk + 1) * b->per_chunk, b->products);
  if (b->tiny) {
    gemm_tiny(&b->g, b->dims, b->dim, chunk * b->per_chunk, end);
    return;
  }
  int64_t slot = plait_slot_acquire(&b->slots);
  for (int64_t i = chunk * b->per_chunk; i < end; i++) run_one(b, NULL, i, b->slots.bytes + slot * b->slots.size);
  plait_slot_release(&b->slots, slot);
}

static const plaitk_gemm_engine built_in = {plaitk_gemm_scratch, plaitk_gemm_run};
static const plaitk_gemm_engine *_Atomic chosen = &built_in;

void plaitk_gemm_set_engine(const plaitk_gemm_engine *engine) { atomic_store(&chosen, engine == NULL ? &built_in : engine); }

// A batch with one B and adjacent matrices A and C is one product with more rows.
static void join_rows(batch *b) {
  while (b->dims > 0) {
    const plaitk_gemm_dim *last = &b->dim[b->dims - 1];
    if (last->b != 0 || last->a != b->g.m * b->g.a_row || last->c != b->g.m * b->g.c_row) break;
    b->g.m *= last->size;
    b->products /= max64(1, last->size);
    b->dims--;
  }
}

// A product of many short rows by a tiny B becomes a batch with a product for each row. Long rows by a vector are dot products.
static void split_rows(batch *b) {
  plaitk_gemm row = b->g;
  row.m = 1;
  if (b->products != 1 || b->g.m < MANY || !gemm_is_tiny(&row) || (row.n == 1 && row.k > SHORT_DOT)) return;
  b->dims = 1;
  b->dim[0] = (plaitk_gemm_dim){b->g.m, b->g.a_row, 0, b->g.c_row};
  b->products = b->g.m;
  b->g.m = 1;
}

static batch batch_of(const plaitk_gemm *g, int dims, const plaitk_gemm_dim *dim) {
  batch b = {.engine = g->turned ? &built_in : atomic_load_explicit(&chosen, memory_order_relaxed), .g = *g, .products = 1};
  b.g.variant = plaitk_gemm_variant();
  for (int d = 0; d < dims; d++) {
    b.products *= dim[d].size;
    if (dim[d].size != 1) b.dim[b.dims++] = dim[d];
  }
  join_rows(&b);
  // Along any dimension that B does not have, there are rows. The longest makes the largest products, as for a transposed
  // input of a linear layer. But rows that are adjacent in memory are read and written faster.
  for (int d = 0; d < b.dims && b.g.a_row != 1 && b.g.c_row != 1; d++) {
    plaitk_gemm_dim *dim = &b.dim[d];
    if (dim->b != 0 || dim->size <= b.g.m) continue;
    plaitk_gemm_dim rows = {b.g.m, b.g.a_row, 0, b.g.c_row};
    b.products = b.products / dim->size * rows.size;
    b.g.m = dim->size, b.g.a_row = dim->a, b.g.c_row = dim->c;
    *dim = rows;
  }
  join_rows(&b);
  split_rows(&b);
  b.tiny = b.products >= MANY && gemm_is_tiny(&b.g);
  int64_t ops = max64(1, b.g.m * b.g.n * max64(1, b.g.k));
  if (b.products > 1 && (ops <= TINY_OPS || (ops <= SMALL_OPS && b.products >= MANY))) {
    b.per_chunk = ceil_div(CHUNK_OPS, ops);
    b.chunks = ceil_div(b.products, b.per_chunk);
  }
  return b;
}

int64_t plaitk_gemm_batched(plait_pool *pool, const plaitk_gemm *g, int dims, const plaitk_gemm_dim *dim, void *scratch,
                            int64_t bytes) {
  batch b = batch_of(g, dims, dim);
  int threads = plait_pool_threads(pool);
  if (b.chunks == 0) {
    int64_t need = b.products > 0 ? b.engine->scratch(threads, &b.g) : 0;
    if (need > bytes) return need;
    for (int64_t i = 0; i < b.products; i++) run_one(&b, pool, i, scratch);
    return 0;
  }
  int64_t per_product = b.tiny ? 0 : b.engine->scratch(1, &b.g), slots = min64(threads, b.chunks);
  char *at = NULL;
  plait_slots_plan(&b.slots, &at, slots, per_product, 0);
  if ((intptr_t)at > bytes) return (intptr_t)at;
  at = scratch;
  plait_slots_plan(&b.slots, &at, slots, per_product, 1);
  plait_parallel(pool, b.chunks, batch_chunk, &b);
  return 0;
}
