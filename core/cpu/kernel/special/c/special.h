// Functions of elements that have no body in the language of elementwise operations. Tensors are contiguous, of n elements of
// float (dtype PLAIT_F32) or double.
#ifndef PLAITK_SPECIAL_H
#define PLAITK_SPECIAL_H

#include <stdbool.h>
#include <stdint.h>

#include "../../../include/plait_pool.h"

enum { SPECIAL_NEXTAFTER, SPECIAL_FREXP, SPECIAL_FUNCTION, SPECIAL_PAIR };

// Functions of one number.
enum {
  SPECIAL_I0,
  SPECIAL_I1,
  SPECIAL_I0E,
  SPECIAL_I1E,
  SPECIAL_K0,
  SPECIAL_K1,
  SPECIAL_K0E,
  SPECIAL_K1E,
  SPECIAL_J0,
  SPECIAL_J1,
  SPECIAL_Y0,
  SPECIAL_Y1,
  SPECIAL_ERFCX,
  SPECIAL_LOG_NDTR,
  SPECIAL_NDTRI,
  SPECIAL_AIRY_AI,
};

// Functions of two numbers.
enum {
  SPECIAL_GAMMAINC,
  SPECIAL_GAMMAINCC,
  SPECIAL_HERMITE_H,
  SPECIAL_HERMITE_HE,
  SPECIAL_LAGUERRE,
  SPECIAL_LEGENDRE,
  SPECIAL_CHEBYSHEV_T,
  SPECIAL_CHEBYSHEV_U,
  SPECIAL_CHEBYSHEV_V,
  SPECIAL_CHEBYSHEV_W,
  SPECIAL_SHIFTED,  // the first of four, of 2x - 1
};

// The largest degree of a polynomial, whose recurrence is as long: nobody can end a loop of 10^12 steps.
enum { SPECIAL_LONGEST = 1 << 20 };

struct plaitk_special {
  int32_t op, dtype, function;  // function: which of one number, or of two
  bool derivative;              // of a polynomial, by x
  int64_t n;
  const void *x, *y;   // y: towards where nextafter goes, or the second number
  void *out;
  int32_t *exponents;  // of frexp
};

double plaitk_special_of(int32_t function, double x);
double plaitk_special_of_pair(int32_t function, double x, double y, bool derivative);

// Returns where the first degree is that is larger than SPECIAL_LONGEST and finite, or -1.
int64_t plaitk_special_too_long(const struct plaitk_special *s);

void plaitk_special_run(plait_pool *pool, const struct plaitk_special *s);

#endif
