// Functions of elements that the language of elementwise operations cannot express. Tensors are contiguous, of n
// elements of float (dtype PLAIT_F32) or double.
#ifndef PLAITK_SPECIAL_H
#define PLAITK_SPECIAL_H

#include <stdbool.h>
#include <stdint.h>

#include "../../../include/plait_pool.h"

enum { SPECIAL_NEXTAFTER, SPECIAL_FREXP, SPECIAL_FUNCTION, SPECIAL_PAIR };

// Functions of one argument.
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

// Functions of two arguments.
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
  SPECIAL_SHIFTED,  // the first of four shifted polynomials, with argument 2x - 1
};

// The largest degree of a polynomial. The recurrence takes a step for each degree, and a running kernel cannot be
// interrupted.
enum { SPECIAL_LONGEST = 1 << 20 };

struct plaitk_special {
  int32_t op, dtype, function;  // function: one of either enum above
  bool derivative;              // of a polynomial, with respect to x
  int64_t n;
  const void *x, *y;   // y: the direction of nextafter, or the second argument
  void *out;
  int32_t *exponents;  // of frexp
};

void plaitk_special_next_after_f32(float *restrict out, const float *restrict x, const float *restrict y, int64_t n);
void plaitk_special_next_after_f64(double *restrict out, const double *restrict x, const double *restrict y, int64_t n);

// Loops over floats: of the functions from I0, from K0 and from J0 on, and of ndtri.
typedef void (*plaitk_special_loop)(float *restrict out, const float *restrict x, int64_t n);
extern const plaitk_special_loop plaitk_special_loops_i[4], plaitk_special_loops_k[4], plaitk_special_loops_jy[4];
extern const plaitk_special_loop plaitk_special_loop_ndtri;
typedef void (*plaitk_special_double_loop)(double *restrict out, const double *restrict x, int64_t n);
extern const plaitk_special_double_loop plaitk_special_double_loops_i[4], plaitk_special_double_loops_k[4];
extern const plaitk_special_double_loop plaitk_special_double_loops_j[2], plaitk_special_double_loop_ndtri;

double plaitk_special_of(int32_t function, double x);
double plaitk_special_of_pair(int32_t function, double x, double y, bool derivative);

// Returns the position of the first degree that is finite and larger than SPECIAL_LONGEST, or -1.
int64_t plaitk_special_too_long(const struct plaitk_special *s);

void plaitk_special_run(plait_pool *pool, const struct plaitk_special *s);

#endif
