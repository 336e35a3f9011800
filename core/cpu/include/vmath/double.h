// The other functions of float64: libm's, or our own where libm has none.
#ifndef PLAIT_VMATH_DOUBLE_H
#define PLAIT_VMATH_DOUBLE_H

#include "double_pow.h"
#include "double_trig.h"
#include "erf.h"

#define PLAIT_VM_LIBM(name, call) \
  PLAIT_INLINE double plait_vm_##name(double x) { return call(x); }
PLAIT_VM_LIBM(sqrt, sqrt)
PLAIT_VM_LIBM(floor, floor)
PLAIT_VM_LIBM(ceil, ceil)
PLAIT_VM_LIBM(trunc, trunc)
PLAIT_VM_LIBM(round, nearbyint)
#undef PLAIT_VM_LIBM

PLAIT_INLINE double plait_vm_fmod(double x, double y) { return fmod(x, y); }

PLAIT_INLINE double plait_vm_rsqrt(double x) { return 1.0 / sqrt(x); }

// x - y floor(x / y), with the sign of y.
PLAIT_INLINE double plait_vm_remainder(double x, double y) {
  double m = fmod(x, y);
  return m != 0.0 && (m < 0.0) != (y < 0.0) ? m + y : m;
}

PLAIT_INLINE double plait_vm_floor_divide(double x, double y) {
  if (y == 0.0) return x / y;
  double m = fmod(x, y);
  double q = (x - m) / y - (m != 0.0 && (m < 0.0) != (y < 0.0) ? 1.0 : 0.0);
  if (q == 0.0) return copysign(0.0, x / y);
  double whole = floor(q);
  return whole + (q - whole > 0.5 ? 1.0 : 0.0);
}

// lgamma writes to a global variable; lgamma_r does not.
PLAIT_INLINE double plait_vm_lgamma(double x) {
  int sign;
  return lgamma_r(x, &sign);
}

// The derivative of lgamma: the recurrence up to 12, then the asymptotic series. Negative arguments are reflected.
PLAIT_INLINE double plait_vm_digamma(double x) {
  if (x == 0.0) return -copysign(PLAIT_VM_INF, x);
  double shift = 0.0;
  if (x < 0.0) {
    double part = x - nearbyint(x);
    if (part == 0.0 || x == -PLAIT_VM_INF) return PLAIT_VM_NAN;
    shift = -0x1.921fb54442d18p+1 / tan(0x1.921fb54442d18p+1 * part);
    x = 1.0 - x;
  }
  for (; x < 12.0; x += 1.0) shift -= 1.0 / x;
  double s = 1.0 / x, t = s * s;
  double series = 691.0 / 32760.0 - t * (1.0 / 12.0);
  series = 1.0 / 132.0 - t * series;
  series = 1.0 / 240.0 - t * series;
  series = 1.0 / 252.0 - t * series;
  series = 1.0 / 120.0 - t * series;
  series = 1.0 / 12.0 - t * series;
  return shift + (log(x) - 0.5 * s - t * series);
}

#endif
