// The shim between Go and cuBLASLt, which is loaded at run time. Matrices are column-major here, as the library takes
// them: c = alpha a b + beta c + bias, where c is m x n and the bias has m elements.
#ifndef PLAIT_CUBLASLT_SHIM_H
#define PLAIT_CUBLASLT_SHIM_H

#include <stdint.h>

enum { PLAITK_LT_TEXT = 512 };

// A loaded library, with a handle for one context of the CUDA driver.
typedef struct plaitk_lt plaitk_lt;

// A plan is how the library computes products of one shape. It may be used by one thread at a time.
typedef struct plaitk_lt_plan plaitk_lt_plan;

// The shape of a product. All that the library may choose an algorithm by is in it.
typedef struct {
  uint64_t m, n, k;
  int64_t lda, ldb, ldc;                // elements between columns
  int64_t next_a, next_b, next_c;       // elements between matrices of the batch
  int32_t count;                        // size of the batch
  int32_t ta, tb;                       // 1 if a factor is stored transposed
  int32_t factors, result;              // PLAITK_LT_F32 and so on
  int32_t reduced;                      // 1 if TF32, and partial sums of 16 bits, are allowed
  int32_t bias;                         // 1 if there is one
  uint32_t align_a, align_b, align_c, align_bias; // powers of two that divide the addresses
  uint64_t workspace;                   // bytes of scratch memory
} plaitk_lt_shape;

// Types of elements, with the library's numbers.
enum { PLAITK_LT_F32 = 0, PLAITK_LT_F64 = 1, PLAITK_LT_F16 = 2, PLAITK_LT_BF16 = 14 };

// A product to run. Addresses are those of the GPU.
typedef struct {
  plaitk_lt_plan *plan;
  uint64_t a, b, c, bias, workspace;
  double alpha, beta;
} plaitk_lt_product;

// The library's status for a product that it has no algorithm for.
enum { PLAITK_LT_UNSUPPORTED = 15 };

// plaitk_lt_load takes the functions of a library that the process has opened. It returns the version, or 0 with the
// reason in text.
uint64_t plaitk_lt_load(const char *path, char text[PLAITK_LT_TEXT]);

// plaitk_lt_open returns a handle for a context, or NULL with the library's status. Without a context, it is for that
// of the calling thread.
plaitk_lt *plaitk_lt_open(void *context, int *status);
void plaitk_lt_close(plaitk_lt *lt);

// plaitk_lt_describe returns a plan without an algorithm, and plaitk_lt_choose finds the algorithm. On an error they
// set the status, and plaitk_lt_describe returns NULL.
plaitk_lt_plan *plaitk_lt_describe(const plaitk_lt_shape *shape, int *status);
int plaitk_lt_choose(plaitk_lt *lt, plaitk_lt_plan *plan, const plaitk_lt_shape *shape);
void plaitk_lt_free(plaitk_lt_plan *plan);

// plaitk_lt_run puts a product on a stream. The handle's context is current on the calling thread. It returns the
// library's status, 0 if all is well.
int plaitk_lt_run(plaitk_lt *lt, const plaitk_lt_product *product, void *stream);

// plaitk_lt_status returns the library's text for a status.
const char *plaitk_lt_status(int status);

#endif
