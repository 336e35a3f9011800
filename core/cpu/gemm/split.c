#include "gemm.h"

// Split-K: a product with a small C and a large K, such as a weight gradient, has too few tiles for many workers. Its K
// is split into slabs by the shape. Each slab has its own C; these are added in order.

#define SLAB_DEPTH 2048
#define SLABS 64
#define C_ELEMENTS 65536
#define ENOUGH_PANELS 16
#define ROUND_ELEMENTS 8192  // elements of C that a chunk of the addition adds

bool gemm_is_split(const gemm_job *job) {
  const gemm_kernels *kn = job->kernels;
  int64_t panels = max64(ceil_div(job->m, kn->mr), ceil_div(job->n, kn->nv * kn->lanes));
  return job->k >= 2 * SLAB_DEPTH && job->m * job->n <= C_ELEMENTS && panels < ENOUGH_PANELS;
}

typedef struct split {
  const gemm_job *job;
  char *sums;
  int64_t slabs, depth;
  int64_t rows;       // rows of C in a chunk of the addition
  plait_slots slots;  // scratch for the products of slabs
} split;

// Returns the product of one slab.
static gemm_job job_of(const split *s, int64_t slab) {
  gemm_job job = *s->job;
  const gemm_kernels *kn = job.kernels;
  int64_t k0 = slab * s->depth;
  job.k = min64(s->depth, job.k - k0);
  job.a += k0 * job.a_col * job.a_size;
  job.b += k0 * job.b_row * job.b_size;
  job.c = s->sums + slab * job.m * job.n * kn->size;
  job.out_size = kn->size;
  job.epilogue = (gemm_epilogue){.out = kn->size == 8 ? PLAIT_F64 : PLAIT_F32, .c_row = job.n, .c_col = 1, .alpha = 1};
  job.bias = NULL;
  job.in_c = true;
  return job;
}

static void slab_chunk(void *arg, int64_t slab) {
  const split *s = arg;
  gemm_job job = job_of(s, slab);
  int64_t slot = plait_slot_acquire(&s->slots);
  gemm_any(NULL, &job, s->slots.bytes + slot * s->slots.size);
  plait_slot_release(&s->slots, slot);
}

static void add_chunk(void *arg, int64_t chunk) {
  const split *s = arg;
  const gemm_job *job = s->job;
  const gemm_kernels *kn = job->kernels;
  int64_t row = chunk * s->rows, rows = min64(s->rows, job->m - row);
  char *sums = s->sums + row * job->n * kn->size;
  gemm_epilogue add = {.out = kn->size == 8 ? PLAIT_F64 : PLAIT_F32, .c_col = 1, .alpha = 1, .beta = 1};
  for (int64_t slab = 1; slab < s->slabs; slab++) {
    kn->epilogue(&add, sums + slab * job->m * job->n * kn->size, 0, 1, rows * job->n, sums, NULL);
  }
  kn->epilogue(&job->epilogue, sums, job->n, rows, job->n, job->c + row * job->epilogue.c_row * job->out_size,
             gemm_bias(job, row, 0));
}

static split plan(const gemm_job *job, int threads, char **at, int lay_out) {
  int64_t slabs = min64(SLABS, job->k / SLAB_DEPTH);
  split s = {.job = job, .depth = round_up(ceil_div(job->k, slabs), 8)};
  s.slabs = ceil_div(job->k, s.depth);
  s.rows = max64(1, ROUND_ELEMENTS / job->n);
  s.sums = plait_carve(at, s.slabs * job->m * job->n * job->kernels->size);
  gemm_job first = job_of(&s, 0), last = job_of(&s, s.slabs - 1);
  int64_t bytes = max64(gemm_any_scratch(1, &first), gemm_any_scratch(1, &last));
  plait_slots_plan(&s.slots, at, min64(threads, s.slabs), bytes, lay_out);
  return s;
}

int64_t gemm_split_scratch(int threads, const gemm_job *job) {
  char *at = NULL;
  plan(job, threads, &at, 0);
  return (int64_t)(intptr_t)at;
}

void gemm_split(plait_pool *pool, const gemm_job *job, char *scratch) {
  split s = plan(job, plait_pool_threads(pool), &scratch, 1);
  plait_parallel(pool, s.slabs, slab_chunk, &s);
  plait_parallel(pool, ceil_div(job->m, s.rows), add_chunk, &s);
}
