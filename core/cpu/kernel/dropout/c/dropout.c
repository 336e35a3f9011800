#include "dropout.h"

#include "../../../include/plait_kernel.h"
#include "../../../include/plait_philox.h"

// Number of Philox blocks, of four words each, that are generated together.
#define BLOCKS 64
#define CHUNK_ELEMENTS (64 * 4 * BLOCKS)

struct dropout {
  int dtype;
  const void *x;
  void *y;
  int64_t n;
  uint64_t seed, offset, limit;
  double scale;
};

// Writes the words of 4*BLOCKS elements in order, starting at block `first`.
PLAIT_INLINE void words(uint64_t seed, uint64_t first, uint32_t *w) {
  uint32_t lane[4][BLOCKS];
#pragma omp simd
  for (int64_t j = 0; j < BLOCKS; j++) {
    plait_philox(seed, first + (uint64_t)j, &lane[0][j], &lane[1][j], &lane[2][j], &lane[3][j]);
  }
#pragma omp simd
  for (int64_t j = 0; j < BLOCKS; j++) {
    w[4 * j] = lane[0][j];
    w[4 * j + 1] = lane[1][j];
    w[4 * j + 2] = lane[2][j];
    w[4 * j + 3] = lane[3][j];
  }
}

#define PLAIT_TEMPLATE "../kernel/dropout/c/elements.h"
#include "../../../include/plait_each_float.h"

static void run(void *arg, int64_t chunk) {
  const struct dropout *a = arg;
  int64_t first = chunk * CHUNK_ELEMENTS, n = a->n - first < CHUNK_ELEMENTS ? a->n - first : CHUNK_ELEMENTS;
  switch (a->dtype) {
    case PLAIT_F16: dropout_f16(a, first, n); break;
    case PLAIT_BF16: dropout_bf16(a, first, n); break;
    case PLAIT_F32: dropout_f32(a, first, n); break;
    default: dropout_f64(a, first, n);
  }
}

void plaitk_dropout(plait_pool *pool, int dtype, const void *x, void *y, int64_t n, uint64_t seed, uint64_t offset,
                    uint64_t limit, double scale) {
  struct dropout a = {dtype, x, y, n, seed, offset, limit, scale};
  plait_parallel(pool, (n + CHUNK_ELEMENTS - 1) / CHUNK_ELEMENTS, run, &a);
}
