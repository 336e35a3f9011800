#include <stdatomic.h>

#include "gemm.h"
#include "scratch.h"

// A product with a small C and a great depth, as the gradient of a weight, has too few tiles for many workers. It is cut
// along the depth into slabs by the shape; each makes a C of its own, and these are added in order.

#define SLAB_DEPTH 2048
#define SLABS 64
#define C_ELEMENTS 65536
#define ENOUGH_PANELS 16
#define ROUND_ELEMENTS 8192  // of C in a chunk of the addition

bool gemm_is_split(const gemm_job *job) {
  const gemm_kernels *kn = job->kernels;
  int64_t panels = most(ceil_div(job->m, kn->mr), ceil_div(job->n, kn->nv * kn->lanes));
  return job->k >= 2 * SLAB_DEPTH && job->m * job->n <= C_ELEMENTS && panels < ENOUGH_PANELS;
}

typedef struct split {
  const gemm_job *job;
  char *sums;
  int64_t slabs, depth;
  int64_t rows;  // of a chunk of the addition
  atomic_bool failed;
} split;

static void slab_chunk(void *arg, int64_t slab) {
  split *s = arg;
  gemm_job job = *s->job;
  const gemm_kernels *kn = job.kernels;
  int64_t k0 = slab * s->depth;
  job.k = least(s->depth, job.k - k0);
  job.a += k0 * job.a_col * job.in_size;
  job.b += k0 * job.b_row * job.in_size;
  job.c = s->sums + slab * job.m * job.n * kn->size;
  job.out_size = kn->size;
  job.finish = (gemm_finish){.out = kn->size == 8 ? PLAIT_F64 : PLAIT_F32, .c_row = job.n, .c_col = 1, .alpha = 1};
  job.bias = NULL;
  job.direct = true;
  if (gemm_any(NULL, &job) != PLAITK_GEMM_OK) atomic_store(&s->failed, true);
}

static void add_chunk(void *arg, int64_t chunk) {
  const split *s = arg;
  const gemm_job *job = s->job;
  const gemm_kernels *kn = job->kernels;
  int64_t row = chunk * s->rows, rows = least(s->rows, job->m - row);
  char *sums = s->sums + row * job->n * kn->size;
  gemm_finish add = {.out = kn->size == 8 ? PLAIT_F64 : PLAIT_F32, .c_col = 1, .alpha = 1, .beta = 1};
  for (int64_t slab = 1; slab < s->slabs; slab++) {
    kn->finish(&add, sums + slab * job->m * job->n * kn->size, 0, 1, rows * job->n, sums, NULL);
  }
  kn->finish(&job->finish, sums, job->n, rows, job->n, job->c + row * job->finish.c_row * job->out_size,
             gemm_bias(job, row, 0));
}

int64_t gemm_split(plait_pool *pool, const gemm_job *job) {
  int64_t slabs = least(SLABS, job->k / SLAB_DEPTH);
  split s = {.job = job, .depth = round_up(ceil_div(job->k, slabs), 8)};
  s.slabs = ceil_div(job->k, s.depth);
  s.sums = gemm_take((size_t)(s.slabs * job->m * job->n * job->kernels->size));
  if (s.sums == NULL) return PLAITK_GEMM_NO_MEMORY;
  plait_parallel(pool, s.slabs, slab_chunk, &s);
  s.rows = most(1, ROUND_ELEMENTS / job->n);
  plait_parallel(pool, ceil_div(job->m, s.rows), add_chunk, &s);
  gemm_give(s.sums);
  return atomic_load(&s.failed) ? PLAITK_GEMM_NO_MEMORY : PLAITK_GEMM_OK;
}
