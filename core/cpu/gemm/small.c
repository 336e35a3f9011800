#include "gemm.h"

// A small product uses A as it is, and B if its rows are contiguous and not turned: packing would cost as much as it saves.

#define SMALL_OPS (80 * 80 * 80)
#define DEPTH 384

bool gemm_is_small(const gemm_job *job) { return job->same_type && job->m * job->n * job->k <= SMALL_OPS; }

// If C cannot hold the accumulators, scratch does.
static int64_t sums_bytes(const gemm_job *job) {
  const gemm_kernels *kn = job->kernels;
  return job->in_c ? 0 : round_up(job->m * round_up(job->n, kn->lanes) * kn->size, 64);
}

int64_t gemm_small_scratch(const gemm_job *job) {
  const gemm_kernels *kn = job->kernels;
  return sums_bytes(job) + kn->nv * kn->lanes * min64(DEPTH, job->k) * kn->size;
}

void gemm_small(const gemm_job *job, char *scratch) {
  const gemm_kernels *kn = job->kernels;
  int64_t size = kn->size, panel = kn->nv * kn->lanes;
  int64_t sums_row = job->in_c ? job->epilogue.c_row : round_up(job->n, kn->lanes);
  char *sums = job->in_c ? job->c : scratch;
  char *packed = scratch + sums_bytes(job);
  for (int64_t k0 = 0; k0 == 0 || k0 < job->k; k0 += DEPTH) {
    int64_t depth = min64(DEPTH, job->k - k0);
    bool add = k0 > 0 || (job->in_c && job->epilogue.beta != 0), last = k0 + depth >= job->k;
    bool add_bias = job->in_c && last && job->bias != NULL;
    for (int64_t j = 0; j < job->n; j += panel) {
      int64_t cols = min64(panel, job->n - j), vectors = ceil_div(cols, kn->lanes);
      bool whole = vectors * kn->lanes == cols;
      const char *b = job->b + (k0 * job->b_row + j * job->b_col) * size;
      int64_t b_row = job->b_row;
      if (job->b_col != 1 || !whole || job->turned) {
        kn->pack(packed, vectors * kn->lanes, b, job->b_in, cols, job->b_col, depth, job->b_row);
        b = packed;
        b_row = vectors * kn->lanes;
      }
      for (int64_t i = 0; i < job->m; i += kn->mr) {
        int64_t rows = min64(kn->mr, job->m - i);
        const char *a = job->a + (i * job->a_row + k0 * job->a_col) * size;
        char *to = sums + (i * sums_row + j) * size;
        gemm_unpacked unpacked = kn->unpacked[vectors - 1][rows - 1];
        if (!add_bias && (whole || !job->in_c)) {
          unpacked(depth, a, job->a_row, job->a_col, b, b_row, to, sums_row, add);
          continue;
        }
        _Alignas(64) char tile[GEMM_MAX_TILE_BYTES];
        unpacked(depth, a, job->a_row, job->a_col, b, b_row, tile, vectors * kn->lanes, 0);
        gemm_store_tile(job, tile, vectors * kn->lanes, rows, cols, to, add, last, i, j);
      }
    }
  }
  if (!job->in_c) kn->epilogue(&job->epilogue, sums, sums_row, job->m, job->n, job->c, gemm_bias(job, 0, 0));
}
