#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("no-trapping-math") // else loops with a choice are not vectorised for AVX2
#endif
#include "dropout.h"

#include "../../../include/plait_kernel.h"
#include "../../../include/plait_philox_words.h"

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
