#include <limits.h>

#include "library.h"
#include "../include/plait_kernel.h"

#define SMALL_OPS (48 * 48 * 48)   // multiplications up to which the built-in kernels are as fast
#define BLOCK_OPS (1 << 23)        // multiplications of a block that is not cut further
#define BLOCK_SIDE 256             // rows or columns below which a block is not split, since packing would take too long
#define BLOCKS 8                   // number of blocks of a product, at most
#define LARGE_OPS ((int64_t)1 << 33)  // multiplications above which LARGE_BLOCKS is the limit
#define LARGE_BLOCKS 32

typedef void (*sgemm)(int, int, int, int, int, int, float, const void *, int, const void *, int, float, void *, int);
typedef void (*dgemm)(int, int, int, int, int, int, double, const void *, int, const void *, int, double, void *, int);
typedef void (*sgemm_wide)(int, int, int, int64_t, int64_t, int64_t, float, const void *, int64_t, const void *, int64_t,
                           float, void *, int64_t);
typedef void (*dgemm_wide)(int, int, int, int64_t, int64_t, int64_t, double, const void *, int64_t, const void *,
                           int64_t, double, void *, int64_t);

enum { ROW_MAJOR = 101, NO_TRANS = 111, TRANS = 112 };

void blas_call(bool is_double, const blas_block *x) {
  int ta = x->ta ? TRANS : NO_TRANS, tb = x->tb ? TRANS : NO_TRANS;
  int m = (int)x->m, n = (int)x->n, k = (int)x->k, lda = (int)x->lda, ldb = (int)x->ldb, ldc = (int)x->ldc;
  if (blas.wide && is_double) {
    ((dgemm_wide)blas.dgemm)(ROW_MAJOR, ta, tb, x->m, x->n, x->k, x->alpha, x->a, x->lda, x->b, x->ldb, x->beta, x->c,
                             x->ldc);
  } else if (blas.wide) {
    ((sgemm_wide)blas.sgemm)(ROW_MAJOR, ta, tb, x->m, x->n, x->k, (float)x->alpha, x->a, x->lda, x->b, x->ldb,
                             (float)x->beta, x->c, x->ldc);
  } else if (is_double) {
    ((dgemm)blas.dgemm)(ROW_MAJOR, ta, tb, m, n, k, x->alpha, x->a, lda, x->b, ldb, x->beta, x->c, ldc);
  } else {
    ((sgemm)blas.sgemm)(ROW_MAJOR, ta, tb, m, n, k, (float)x->alpha, x->a, lda, x->b, ldb, (float)x->beta, x->c, ldc);
  }
}

typedef struct work {
  const plaitk_gemm *g;
  blas_block whole;
  bool is_double;
  int64_t rows, cols, across;  // rows and columns of a block, and blocks in a row
} work;

// Initialises a block of C to beta * C + bias, to which the library then adds the product.
#define START(T, NAME)                                                                         \
  static void NAME(const plaitk_gemm *g, T *c, int64_t ldc, int64_t j0, int64_t m, int64_t n) { \
    const T *bias = (const T *)g->bias + j0 * g->bias_step;                                    \
    for (int64_t i = 0; i < m; i++) {                                                          \
      for (int64_t j = 0; j < n; j++) {                                                        \
        T x = bias[j * g->bias_step];                                                          \
        c[i * ldc + j] = g->beta == 0 ? x : (T)g->beta * c[i * ldc + j] + x;                   \
      }                                                                                        \
    }                                                                                          \
  }

START(float, start_f32)
START(double, start_f64)

static void block_chunk(void *arg, int64_t chunk) {
  const work *w = arg;
  const plaitk_gemm *g = w->g;
  int64_t size = w->is_double ? 8 : 4;
  int64_t i = chunk / w->across * w->rows, j = chunk % w->across * w->cols;
  blas_block b = w->whole;
  b.m = g->m - i < w->rows ? g->m - i : w->rows;
  b.n = g->n - j < w->cols ? g->n - j : w->cols;
  b.a = (const char *)g->a + i * g->a_row * size;
  b.b = (const char *)g->b + j * g->b_col * size;
  b.c = (char *)g->c + (i * g->c_row + j) * size;
  if (g->bias != NULL) {
    if (w->is_double) start_f64(g, b.c, b.ldc, j, b.m, b.n);
    else start_f32(g, b.c, b.ldc, j, b.m, b.n);
    b.beta = 1;
  }
  blas_call(w->is_double, &b);
}

// Sets the leading dimension of a matrix. It returns false if the library cannot take the strides.
static bool leading(int64_t row, int64_t col, int64_t rows, int64_t cols, int64_t *ld, int *transposed) {
  *transposed = col != 1;
  *ld = col == 1 ? row : col;
  if (col != 1 && row != 1) return false;
  int64_t least = col == 1 ? cols : rows;
  if (least < 1) least = 1;
  if ((col == 1 ? rows : cols) <= 1 && *ld < least) *ld = least;
  return *ld >= least;
}

// Reports whether the library is faster than the built-in kernels. It sets w->whole.
static bool takes(const plaitk_gemm *g, work *w) {
  *w = (work){.g = g, .is_double = g->in == PLAIT_F64};
  blas_block *x = &w->whole;
  *x = (blas_block){.m = g->m, .n = g->n, .k = g->k, .alpha = g->alpha, .beta = g->beta};
  int tc;
  int64_t bound = blas.wide ? INT64_MAX : INT_MAX;
  bool fits = g->in == g->out && g->in >= PLAIT_F32 && g->m > 4 && g->n > 4 && g->m * g->n * g->k > SMALL_OPS &&
              leading(g->a_row, g->a_col, g->m, g->k, &x->lda, &x->ta) &&
              leading(g->b_row, g->b_col, g->k, g->n, &x->ldb, &x->tb) &&
              leading(g->c_row, g->c_col, g->m, g->n, &x->ldc, &tc) && !tc && g->m <= bound && g->n <= bound &&
              g->k <= bound && x->lda <= bound && x->ldb <= bound && x->ldc <= bound;
  return fits && g->k <= 8 * (g->m + g->n);
}

static int64_t scratch_of(int threads, const plaitk_gemm *g) {
  work w;
  return takes(g, &w) ? 0 : plaitk_gemm_scratch(threads, g);
}

static void run(plait_pool *pool, const plaitk_gemm *g, void *scratch) {
  work w;
  if (!takes(g, &w)) {
    plaitk_gemm_run(pool, g, scratch);
    return;
  }
  // The shape decides the blocks: the longer side is halved until there are enough blocks.
  w.rows = g->m, w.cols = g->n;
  int64_t most = g->m * g->n * g->k > LARGE_OPS ? LARGE_BLOCKS : BLOCKS;
  for (int64_t blocks = 1; blocks < most && w.rows * w.cols * g->k > BLOCK_OPS; blocks *= 2) {
    int64_t *side = w.rows >= w.cols ? &w.rows : &w.cols;
    if (*side < BLOCK_SIDE) break;
    *side = (*side / 2 + 15) / 16 * 16;
  }
  w.across = (g->n + w.cols - 1) / w.cols;
  plait_parallel(pool, (g->m + w.rows - 1) / w.rows * w.across, block_chunk, &w);
}

const plaitk_gemm_engine blas_engine = {scratch_of, run};
