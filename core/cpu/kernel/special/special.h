// Functions of elements that have no body in the language of elementwise operations. Tensors are contiguous, of n elements of
// float (dtype PLAIT_F32) or double.
#ifndef PLAITK_SPECIAL_H
#define PLAITK_SPECIAL_H

#include <stdint.h>

#include "../../include/plait_pool.h"

enum { SPECIAL_NEXTAFTER, SPECIAL_FREXP, SPECIAL_BESSEL };

struct plaitk_special {
  int32_t op, dtype, order;  // order: of the Bessel function, 0 or 1
  int64_t n;
  const void *x, *y;   // y: towards where nextafter goes
  void *out;
  int32_t *exponents;  // of frexp
};

void plaitk_special_run(plait_pool *pool, const struct plaitk_special *s);

#endif
