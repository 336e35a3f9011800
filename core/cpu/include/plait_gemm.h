// Matrix products for the kernels of the CPU device.
#ifndef PLAIT_GEMM_H
#define PLAIT_GEMM_H

#include <stdint.h>

#include "plait_pool.h"

// A product C = alpha * A @ B + beta * C, then + bias, then max(., 0): C is [m, n], A [m, k], B [k, n]. Strides are in
// elements and may be anything, zero and negative included; C must not overlap itself, A or B.
typedef struct plaitk_gemm {
  int64_t m, n, k;
  const void *a;
  int64_t a_row, a_col;
  const void *b;
  int64_t b_row, b_col;
  void *c;
  int64_t c_row, c_col;
  int in;   // dtype of A, B and bias: PLAIT_F16, PLAIT_BF16, PLAIT_F32 or PLAIT_F64
  int out;  // dtype of C: PLAIT_F64 if and only if `in` is; otherwise F16, BF16 or F32. Sums run in float32 or float64.
  double alpha, beta;  // beta == 0 does not read C
  const void *bias;    // NULL or [n], added to every row of C
  int64_t bias_step;
  int variant;  // the instruction set: plaitk_gemm_batched sets it
} plaitk_gemm;

// A dimension of a batch: how many products, and the elements from the operands of one to those of the next.
typedef struct plaitk_gemm_dim {
  int64_t size, a, b, c;
} plaitk_gemm_dim;

// plaitk_gemm_run computes one product on the workers of `pool`; a NULL pool is the calling thread alone, as inside a
// chunk of another kernel. Every pool gives the same bits. It has the plaitk_gemm_scratch bytes at `scratch`, aligned to 64,
// to itself.
void plaitk_gemm_run(plait_pool *pool, const plaitk_gemm *g, void *scratch);

// plaitk_gemm_scratch returns the bytes of scratch that a product needs on a pool of so many threads.
int64_t plaitk_gemm_scratch(int threads, const plaitk_gemm *g);

// plaitk_gemm_batched computes the product for every index of the batch dimensions, of which there are at most
// PLAIT_MAX_DIMS, and returns 0. Where the products are small, it shares out the batch and not the single product. If it needs
// more than the `bytes` at `scratch` it does nothing and returns how many.
int64_t plaitk_gemm_batched(plait_pool *pool, const plaitk_gemm *g, int dims, const plaitk_gemm_dim *dim, void *scratch,
                            int64_t bytes);

// A plaitk_gemm_engine computes one product as plaitk_gemm_run does, and says how much scratch it needs.
typedef struct plaitk_gemm_engine {
  int64_t (*scratch)(int threads, const plaitk_gemm *g);
  void (*run)(plait_pool *pool, const plaitk_gemm *g, void *scratch);
} plaitk_gemm_engine;

// plaitk_gemm_set_engine makes plaitk_gemm_batched compute its products with an engine other than plaitk_gemm_run; NULL
// goes back to it.
void plaitk_gemm_set_engine(const plaitk_gemm_engine *engine);

// A right-hand matrix B [k, n] packed once for many products inside the chunks of another kernel, in panels of `panel`
// columns; columns past n are zeros. dtype is PLAIT_F32 or PLAIT_F64.
typedef struct plaitk_gemm_panels {
  const void *kernels;
  int64_t k, n, panel, count;  // count of panels
  void *data;                  // count * panel * k elements
} plaitk_gemm_panels;

// plaitk_gemm_panels_of returns the layout of a packed matrix, whose data the caller provides.
plaitk_gemm_panels plaitk_gemm_panels_of(int dtype, int64_t k, int64_t n);

// plaitk_gemm_pack packs panels first to last - 1 of B.
void plaitk_gemm_pack(const plaitk_gemm_panels *p, const void *b, int64_t b_row, int64_t b_col, int64_t first,
                      int64_t last);

// plaitk_gemm_by_panels sets the columns of panels first to last - 1 of C, all of them also where B has fewer, to those of
// A @ B. A has m rows; the columns of A and C are contiguous. The bits of an element of C do not depend on m, first or last.
void plaitk_gemm_by_panels(const plaitk_gemm_panels *p, int64_t m, const void *a, int64_t a_row, int64_t first,
                           int64_t last, void *c, int64_t c_row);

// The instruction sets of the built-in kernels.
enum { PLAITK_GEMM_BASELINE = 0, PLAITK_GEMM_AVX2 = 1, PLAITK_GEMM_AVX512 = 2, PLAITK_GEMM_BEST = -1 };

// plaitk_gemm_use makes later products use an instruction set and returns the former choice; -2, changing nothing, if
// this build or this machine does not have it.
int plaitk_gemm_use(int variant);

// plaitk_gemm_variant returns the instruction set that products use.
int plaitk_gemm_variant(void);

#endif
