#include "gemm.h"

#include <stdatomic.h>

#define MIN_TRANSPOSE_DEPTH 64  // K from which filling the vectors matters more than contiguous stores to C

// The instruction set in use, or PLAITK_GEMM_BEST.
static atomic_int chosen = PLAITK_GEMM_BEST;

int plaitk_gemm_use(int variant) {
  if (variant != PLAITK_GEMM_BEST && gemm_kernels_of(variant, PLAIT_F32) == NULL) return -2;
  return atomic_exchange(&chosen, variant);
}

int plaitk_gemm_variant(void) {
  int variant = atomic_load_explicit(&chosen, memory_order_relaxed);
  if (variant != PLAITK_GEMM_BEST) return variant;
  for (variant = PLAITK_GEMM_AMX; variant > PLAITK_GEMM_BASELINE; variant--) {
    if (gemm_kernels_of(variant, PLAIT_F32) != NULL) break;
  }
  return variant;
}

int plaitk_gemm_has_tiles(int dtype) {
  return gemm_pair_kernels_of(plaitk_gemm_variant(), dtype) != NULL;
}

static int64_t size_of(int dtype) {
  return dtype == PLAIT_F64 ? 8 : dtype == PLAIT_F32 || dtype == GEMM_ROUNDED ? 4 : 2;
}

// Returns how an operand is stored: a dtype, or GEMM_ROUNDED.
static int stored(const plaitk_gemm *g, int operand) { return g->rounded & operand ? GEMM_ROUNDED : g->in; }

// Replaces the product by the transposed one, B' A' = C'.
static void transpose(gemm_job *j) {
  gemm_job t = *j;
  j->m = t.n, j->n = t.m;
  j->a = t.b, j->a_row = t.b_col, j->a_col = t.b_row;
  j->b = t.a, j->b_row = t.a_col, j->b_col = t.a_row;
  j->a_in = t.b_in, j->a_size = t.b_size;
  j->b_in = t.a_in, j->b_size = t.a_size;
  j->epilogue.c_row = t.epilogue.c_col, j->epilogue.c_col = t.epilogue.c_row;
  j->epilogue.bias_rows = !t.epilogue.bias_rows;
}

// Reports whether the transposed product is faster.
static bool wants_transpose(const gemm_job *j) {
  if (j->turned) return false;
  // gemm_thin needs few rows, not few columns.
  if (j->m <= GEMM_MAX_DOTS || j->n <= GEMM_MAX_DOTS) return j->n < j->m;
  // Prefer contiguous rows of C. For a large K, prefer the side that leaves fewer lanes of the vectors empty.
  int64_t lanes = j->kernels->lanes, vectors = j->m * ceil_div(j->n, lanes), other = j->n * ceil_div(j->m, lanes);
  bool deep = j->k >= MIN_TRANSPOSE_DEPTH;
  if (deep && 4 * vectors < 3 * other) return false;
  if (deep && 4 * other < 3 * vectors) return true;
  return j->epilogue.c_col != 1 && j->epilogue.c_row == 1;
}

void gemm_store_tile(const gemm_job *job, const void *sums, int64_t sums_row, int64_t rows, int64_t cols, char *c,
                     bool add, bool last, int64_t i, int64_t j) {
  gemm_epilogue f = job->epilogue;
  f.beta = add ? 1 : 0;
  job->kernels->epilogue(&f, sums, sums_row, rows, cols, c, last ? gemm_bias(job, i, j) : NULL);
}

int64_t gemm_any_scratch(int threads, const gemm_job *job) {
  if (gemm_is_thin(job)) return gemm_thin_scratch(threads, job);
  if (gemm_is_small(job)) return gemm_small_scratch(job);
  return gemm_packed_scratch(threads, job);
}

void gemm_any(plait_pool *pool, const gemm_job *job, char *scratch) {
  if (gemm_is_thin(job)) gemm_thin(pool, job, scratch);
  else if (gemm_is_small(job)) gemm_small(job, scratch);
  else gemm_packed(pool, job, scratch);
}

static gemm_job job_of(const plaitk_gemm *g) {
  gemm_job job = {
      .m = g->m, .n = g->n, .k = g->k,
      .a = g->a, .a_row = g->a_row, .a_col = g->a_col,
      .b = g->b, .b_row = g->b_row, .b_col = g->b_col,
      .c = g->c,
      .a_in = stored(g, PLAITK_GEMM_A), .b_in = stored(g, PLAITK_GEMM_B), .out_size = size_of(g->out),
      .kernels = gemm_kernels_of(g->variant, g->in),
      .pairs = gemm_pair_kernels_of(g->variant, g->in),
      .epilogue = {g->out, g->c_row, g->c_col, g->alpha, g->beta, 0},
      .bias = g->bias,
  };
  job.a_size = size_of(job.a_in), job.b_size = size_of(job.b_in);
  if (g->turned) job.b_in = GEMM_TURNED, job.turned = true;
  job.same_type = size_of(g->in) == job.kernels->size;
  if (wants_transpose(&job)) transpose(&job);
  job.in_c = job.out_size == job.kernels->size && job.epilogue.c_col == 1 && g->alpha == 1 &&
               (g->beta == 0 || g->beta == 1);
  return job;
}

// Reports whether the bias has to be converted or made contiguous.
static bool converts_bias(const plaitk_gemm *g, const gemm_job *job) {
  return g->bias != NULL && (!job->same_type || g->bias_step != 1);
}

int64_t plaitk_gemm_scratch(int threads, const plaitk_gemm *g) {
  if (g->m <= 0 || g->n <= 0) return 0;
  gemm_job job = job_of(g);
  char *at = NULL;
  if (converts_bias(g, &job)) plait_carve(&at, g->n * job.kernels->size);
  return (int64_t)(intptr_t)at + (gemm_is_split(&job) ? gemm_split_scratch(threads, &job) : gemm_any_scratch(threads, &job));
}

void plaitk_gemm_run(plait_pool *pool, const plaitk_gemm *g, void *scratch) {
  if (g->m <= 0 || g->n <= 0) return;
  gemm_job job = job_of(g);
  char *at = scratch;
  if (converts_bias(g, &job)) {
    void *bias = plait_carve(&at, g->n * job.kernels->size);
    job.kernels->pack(bias, 1, g->bias, stored(g, PLAITK_GEMM_BIAS), 1, 0, g->n, g->bias_step);
    job.bias = bias;
  }
  if (gemm_is_split(&job)) gemm_split(pool, &job, at);
  else gemm_any(pool, &job, at);
}
