// Elementwise kernels: the types that the generated loops, the driver and Go share.
#ifndef PLAITK_ELEMENTWISE_H
#define PLAITK_ELEMENTWISE_H

#include "../../../include/plait_kernel.h"
#include "../../../include/plait_pool.h"

#define PLAITK_ELEMENTWISE_MAX_IN 8
#define PLAITK_ELEMENTWISE_MAX_OUT 4
#define PLAITK_ELEMENTWISE_MAX_OPERANDS (PLAITK_ELEMENTWISE_MAX_IN + PLAITK_ELEMENTWISE_MAX_OUT)
#define PLAITK_ELEMENTWISE_MAX_ATTRS 8

// A scalar argument: i for integer kernels, f for the others.
typedef union {
  double f;
  int64_t i;
} plaitk_scalar;

// An inner loop over n contiguous elements of the kernel's types. An output may be one of the inputs. It returns 1 if
// integers were divided by zero, else 0.
typedef int64_t (*plaitk_elementwise_loop)(void *const *in, void *const *out, const plaitk_scalar *attr, int64_t n);

// One entry of a generated table. A kernel whose numbers are the parts of complex ones, in turn, may have a second loop, whose
// operands are these numbers as they lie in memory. One whose inputs of the bits in `scalar` are often numbers has a loop that reads a single
// element of each of these. type has the dtype of each operand in the loop, inputs first: PLAIT_BOOL, PLAIT_I64,
// PLAIT_F32 or PLAIT_F64.
typedef struct {
  plaitk_elementwise_loop loop, pairs, scalars;
  uint8_t scalar, nin, nout;
  uint8_t type[PLAITK_ELEMENTWISE_MAX_OPERANDS];
} plaitk_elementwise_kernel;

typedef struct {
  void *data;           // the first element; NULL for an input that is the scalar `value`
  plaitk_scalar value;
  double imaginary;     // the second part of `value` in a call of the second loop
  int64_t dtype;        // dtype in memory
  int64_t stride[PLAIT_MAX_DIMS];  // in elements; 0 along broadcast dimensions
} plaitk_elementwise_operand;

// A kernel and its operands, of any layout and dtype, broadcast to one shape.
typedef struct {
  const plaitk_elementwise_kernel *kernel;
  int64_t ndim;
  int64_t shape[PLAIT_MAX_DIMS];
  plaitk_scalar attr[PLAITK_ELEMENTWISE_MAX_ATTRS];
  plaitk_elementwise_operand operand[PLAITK_ELEMENTWISE_MAX_OPERANDS];  // inputs first
} plaitk_elementwise_call;

// Runs the kernel over all elements. An output must not overlap another operand, except that it may be an input with
// the same strides. Returns the bitwise or of what the loops returned.
int64_t plaitk_elementwise_run(plait_pool *pool, const plaitk_elementwise_call *call);

#endif
