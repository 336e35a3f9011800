// Matrix products for the kernels of the CPU device.
#ifndef PLAIT_GEMM_H
#define PLAIT_GEMM_H

#include <stdint.h>

#include "plait_pool.h"

// A product C = alpha * A @ B + beta * C + bias, where C is [m, n], A [m, k] and B [k, n]. Strides are in elements and
// may be zero or negative. C must not overlap itself, A or B.
typedef struct plaitk_gemm {
  int64_t m, n, k;
  const void *a;
  int64_t a_row, a_col;
  const void *b;
  int64_t b_row, b_col;
  void *c;
  int64_t c_row, c_col;
  int in;   // dtype of A, B and bias: PLAIT_F16, PLAIT_BF16, PLAIT_F32 or PLAIT_F64
  int rounded;  // which of them (PLAITK_GEMM_A, _B, _BIAS) are stored as float32 and rounded to PLAIT_BF16, which is `in`
  int turned;   // B stands for a matrix of complex numbers; see below
  int out;  // dtype of C: PLAIT_F64 if and only if `in` is, else F16, BF16 or F32. Accumulators are float32 or float64.
  double alpha, beta;  // C is not read if beta == 0
  const void *bias;    // NULL or [n], added to every row of C
  int64_t bias_step;
  int variant;  // the instruction set; plaitk_gemm_batched sets it
} plaitk_gemm;

// With `turned`, B consists of a complex number u + iv for each two rows and two columns: u and v, and below them -v and u. So a
// product by rows of the parts of complex numbers, in turn, is their complex product. In memory there are u and v alone, next to
// each other, with twice b_row and b_col between them and the next ones. A is not turned, and B has at least four columns.

// Operands, as bits.
enum { PLAITK_GEMM_A = 1, PLAITK_GEMM_B = 2, PLAITK_GEMM_BIAS = 4 };

// A batch dimension: its size, and the operands' strides along it in elements.
typedef struct plaitk_gemm_dim {
  int64_t size, a, b, c;
} plaitk_gemm_dim;

// plaitk_gemm_run computes one product on the workers of `pool`. With a NULL pool it runs on the calling thread, as
// inside a chunk of another kernel. All pools give the same bits. `scratch` has plaitk_gemm_scratch bytes, aligned to
// 64.
void plaitk_gemm_run(plait_pool *pool, const plaitk_gemm *g, void *scratch);

// plaitk_gemm_scratch returns the bytes of scratch that a product needs on a pool of `threads` threads.
int64_t plaitk_gemm_scratch(int threads, const plaitk_gemm *g);

// plaitk_gemm_batched computes the product for every index of at most PLAIT_MAX_DIMS batch dimensions and returns 0.
// Small products run whole on one thread each; larger ones are split over the threads. If it needs more than `bytes` of
// scratch, it does nothing and returns how many it needs.
int64_t plaitk_gemm_batched(plait_pool *pool, const plaitk_gemm *g, int dims, const plaitk_gemm_dim *dim, void *scratch,
                            int64_t bytes);

// A plaitk_gemm_engine computes products in place of plaitk_gemm_run, and says how much scratch each needs.
typedef struct plaitk_gemm_engine {
  int64_t (*scratch)(int threads, const plaitk_gemm *g);
  void (*run)(plait_pool *pool, const plaitk_gemm *g, void *scratch);
} plaitk_gemm_engine;

// plaitk_gemm_set_engine sets the engine of plaitk_gemm_batched. NULL restores plaitk_gemm_run.
void plaitk_gemm_set_engine(const plaitk_gemm_engine *engine);

// A matrix B [k, n], packed once for many products inside the chunks of another kernel. A panel has `panel` columns;
// columns past n are zeros. dtype is PLAIT_F32 or PLAIT_F64.
typedef struct plaitk_gemm_panels {
  const void *kernels;
  int64_t k, n, panel, count;  // number of panels
  void *data;                  // count * panel * k elements
} plaitk_gemm_panels;

// plaitk_gemm_panels_of returns the layout of a packed matrix. The caller allocates its data.
plaitk_gemm_panels plaitk_gemm_panels_of(int dtype, int64_t k, int64_t n);

// plaitk_gemm_pack packs panels first to last - 1 of B.
void plaitk_gemm_pack(const plaitk_gemm_panels *p, const void *b, int64_t b_row, int64_t b_col, int64_t first,
                      int64_t last);

// plaitk_gemm_by_panels writes the columns of C in panels first to last - 1: C = A @ B. It writes whole panels, also
// where B has fewer columns. A has m rows; rows of A and C are contiguous. The bits of an element do not depend on m,
// first or last.
void plaitk_gemm_by_panels(const plaitk_gemm_panels *p, int64_t m, const void *a, int64_t a_row, int64_t first,
                           int64_t last, void *c, int64_t c_row);

// The instruction sets of the built-in kernels.
enum {
  PLAITK_GEMM_BASELINE = 0,
  PLAITK_GEMM_AVX2 = 1,
  PLAITK_GEMM_AVX512 = 2,
  PLAITK_GEMM_AVX512_BF16 = 3,  // AVX-512, and dot products of bfloat16
  PLAITK_GEMM_AMX = 4,          // the same, and tile registers for bfloat16
  PLAITK_GEMM_BEST = -1,
};

// plaitk_gemm_use selects the instruction set of later products and returns the previous one. If the build or the
// machine lacks it, it returns -2 and changes nothing.
int plaitk_gemm_use(int variant);

// plaitk_gemm_variant returns the instruction set in use.
int plaitk_gemm_variant(void);

// plaitk_gemm_has_tiles reports whether products of a dtype multiply tiles of it as they are: by dot products, twice as fast
// as vectors of float32, or by tile registers, several times as fast.
int plaitk_gemm_has_tiles(int dtype);

// Products of bfloat16 inside the chunks of another kernel, where it has tiles. A matrix is packed into panels
// of up to 32 lines, which are rows of A or columns of B.
enum {
  PLAITK_GEMM_SQUARE = 16,  // a panel's number of lines is a multiple of this
  PLAITK_GEMM_TILE = 32,    // lines of a panel but the last, and elements of K that a line is padded to a multiple of
};

// plaitk_gemm_tiles_bytes returns the bytes of a matrix that is packed. They are aligned to 64.
int64_t plaitk_gemm_tiles_bytes(int64_t lines, int64_t k);

// plaitk_gemm_tiles_a packs A [m, k], plaitk_gemm_tiles_b packs B [k, n].
void plaitk_gemm_tiles_a(void *panels, const uint16_t *a, int64_t m, int64_t a_row, int64_t k, int64_t a_col);
void plaitk_gemm_tiles_b(void *panels, const uint16_t *b, int64_t n, int64_t b_col, int64_t k, int64_t b_row);

// plaitk_gemm_by_tiles computes C = A @ B, or adds it to C. Rows of C are contiguous. It writes whole squares of
// columns, also where B has fewer.
void plaitk_gemm_by_tiles(int64_t m, int64_t n, int64_t k, const void *a, const void *b, float *c, int64_t c_row,
                          int add);

#endif
