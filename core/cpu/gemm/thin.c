#include <string.h>

#include "gemm.h"

// A product with few rows uses each element of B only a few times, so memory bandwidth bounds it. B is used without
// packing, and its columns are split over the workers.

#define CHUNK_ELEMENTS 32768  // elements of B in a chunk
#define CHUNK_COLUMNS 8192    // columns of B in a chunk, at most
#define SERIAL_ELEMENTS 40000
#define LINE_DEPTH 1024       // steps of K in a block, if B's columns are contiguous
#define ROWS_DEPTH 32         // steps of K in a block, if B's rows are

bool gemm_is_thin(const gemm_job *job) {
  return !job->turned && job->m <= GEMM_MAX_DOTS && (job->b_row == 1 || job->b_col == 1);
}

typedef struct thin {
  const gemm_job *job;
  const char *a;         // contiguous rows of the accumulator type, or of bfloat16
  int64_t a_row;         // elements from one of these to the next
  int64_t columns;       // columns of B in a chunk
  int64_t sums_bytes;    // bytes of a chunk's accumulators, at most
  plait_slots slots;     // scratch for the accumulators and the converted part of B
} thin;

// For a B with columns contiguous along K: dot products of rows of A with columns j, j+1, ... of B.
static void by_lines(const thin *t, int64_t j, int64_t cols, char *sums, int64_t sums_row, char *wide) {
  const gemm_job *job = t->job;
  const gemm_kernels *kn = job->kernels;
  gemm_dots dots = kn->dots[job->m - 1];
  memset(sums, 0, (size_t)(job->m * sums_row * kn->size));
  for (int64_t k0 = 0; k0 < job->k; k0 += LINE_DEPTH) {
    int64_t depth = min64(LINE_DEPTH, job->k - k0);
    const char *a = t->a + k0 * kn->size, *b = job->b + (j * job->b_col + k0) * job->b_size;
    if (job->same_type) {
      dots(cols, depth, a, job->k, b, job->b_col, sums, sums_row);
      continue;
    }
    for (int64_t l = 0; l < cols; l += 4) {
      int64_t lines = min64(4, cols - l);
      for (int64_t i = 0; i < lines; i++) {
        const char *line = b + (l + i) * job->b_col * job->b_size;
        kn->pack(wide + i * LINE_DEPTH * kn->size, depth, line, job->b_in, depth, 1, 1, 0);
      }
      dots(lines, depth, a, job->k, wide, LINE_DEPTH, sums + l * kn->size, sums_row);
    }
  }
}

// The kernel for bfloat16 as it is, for a B with columns contiguous along K, or NULL.
static gemm_pair_dots pair_dots(const gemm_job *job) {
  return job->b_row == 1 && job->pairs != NULL ? job->pairs->pair_dots : NULL;
}

// For a B with contiguous rows.
static void by_rows(const thin *t, int64_t j, int64_t cols, char *sums, int64_t sums_row, char *wide) {
  const gemm_job *job = t->job;
  const gemm_kernels *kn = job->kernels;
  int64_t panel = kn->nv * kn->lanes;
  for (int64_t k0 = 0; k0 == 0 || k0 < job->k; k0 += ROWS_DEPTH) {
    int64_t depth = min64(ROWS_DEPTH, job->k - k0);
    const char *a = t->a + k0 * kn->size, *b = job->b + (k0 * job->b_row + j) * job->b_size;
    int64_t b_row = job->b_row, whole = cols / kn->lanes * kn->lanes;
    if (!job->same_type) {
      kn->pack(wide, sums_row, b, job->b_in, cols, 1, depth, job->b_row);
      b = wide, b_row = sums_row, whole = sums_row;
    }
    for (int64_t q = 0; q < cols; q += panel) {
      int64_t vectors = ceil_div(min64(panel, cols - q), kn->lanes);
      const char *from = b + q * kn->size;
      int64_t row = b_row;
      if (q + vectors * kn->lanes > whole) {  // a load of the last vector would go past the row
        row = vectors * kn->lanes;
        kn->pack(wide, row, from, job->b_in, cols - q, 1, depth, b_row);
        from = wide;
      }
      kn->unpacked[vectors - 1][job->m - 1](depth, a, job->k, 1, from, row, sums + q * kn->size, sums_row, k0 > 0);
    }
  }
}

static void thin_chunk(void *arg, int64_t chunk) {
  thin *t = arg;
  const gemm_job *job = t->job;
  const gemm_kernels *kn = job->kernels;
  int64_t j = chunk * t->columns, cols = min64(t->columns, job->n - j), sums_row = round_up(cols, kn->lanes);
  int64_t slot = plait_slot_acquire(&t->slots);
  char *sums = t->slots.bytes + slot * t->slots.size;
  if (pair_dots(job) != NULL) {
    pair_dots(job)(job->m, cols, job->k, t->a, t->a_row, job->b + j * job->b_col * job->b_size, job->b_in, job->b_col,
                   (float *)sums, sums_row);
  } else {
    (job->b_row == 1 ? by_lines : by_rows)(t, j, cols, sums, sums_row, sums + t->sums_bytes);
  }
  kn->epilogue(&job->epilogue, sums, sums_row, job->m, cols, job->c + j * job->epilogue.c_col * job->out_size,
             gemm_bias(job, 0, j));
  plait_slot_release(&t->slots, slot);
}

// Reports whether A has to be packed.
static bool packs(const gemm_job *job) {
  if (pair_dots(job) != NULL) return job->a_in != PLAIT_BF16 || job->a_col != 1;
  return !job->same_type || job->a_col != 1 || (job->m > 1 && job->a_row != job->k);
}

// Packs a row of A as bfloat16.
static void pack_halves(const gemm_job *job, const char *row, uint16_t *to) {
  for (int64_t p = 0; p < job->k; p++, row += job->a_col * job->a_size) {
    to[p] = job->a_in == GEMM_ROUNDED ? plait_f32_to_bf16(*(const float *)row) : *(const uint16_t *)row;
  }
}

static bool is_serial(const gemm_job *job) { return job->n * job->k < SERIAL_ELEMENTS; }

// Lays out the scratch memory from *at on and returns the rows of A in it.
static char *plan(thin *t, int threads, char **at, int lay_out) {
  const gemm_job *job = t->job;
  const gemm_kernels *kn = job->kernels;
  int64_t panel = kn->nv * kn->lanes;
  t->columns = round_up(max64(1, min64(CHUNK_ELEMENTS / max64(1, job->k), CHUNK_COLUMNS)), panel);
  int64_t sums_row = round_up(min64(t->columns, job->n), kn->lanes), wide = 4 * LINE_DEPTH;
  if (job->b_row != 1) wide = min64(ROWS_DEPTH, job->k) * max64(job->same_type ? 0 : sums_row, panel);
  t->sums_bytes = round_up(job->m * sums_row * kn->size, 64);
  int64_t slots = is_serial(job) ? 1 : min64(threads, ceil_div(job->n, t->columns));
  plait_slots_plan(&t->slots, at, slots, t->sums_bytes + wide * kn->size, lay_out);
  return plait_carve(at, packs(job) ? job->m * job->k * kn->size : 0);
}

int64_t gemm_thin_scratch(int threads, const gemm_job *job) {
  thin t = {.job = job};
  char *at = NULL;
  plan(&t, threads, &at, 0);
  return (int64_t)(intptr_t)at;
}

void gemm_thin(plait_pool *pool, const gemm_job *job, char *scratch) {
  const gemm_kernels *kn = job->kernels;
  thin t = {.job = job, .a = job->a};
  char *rows = plan(&t, plait_pool_threads(pool), &scratch, 1);
  t.a_row = packs(job) ? job->k : job->a_row;
  for (int64_t i = 0; packs(job) && i < job->m; i++) {
    if (pair_dots(job) != NULL) {
      pack_halves(job, job->a + i * job->a_row * job->a_size, (uint16_t *)rows + i * job->k);
    } else {
      kn->pack(rows + i * job->k * kn->size, 1, job->a + i * job->a_row * job->a_size, job->a_in, 1, 0, job->k,
               job->a_col);
    }
    t.a = rows;
  }
  plait_parallel(is_serial(job) ? NULL : pool, ceil_div(job->n, t.columns), thin_chunk, &t);
}
