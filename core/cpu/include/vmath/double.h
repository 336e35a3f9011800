// float64 functions: libm's, or our own where libm has none.
#ifndef PLAIT_VMATH_DOUBLE_H
#define PLAIT_VMATH_DOUBLE_H

#include "double_trig.h"
#include "erf.h"

#define PLAIT_VM_LIBM(name, call) \
  PLAIT_INLINE double plait_vm_##name(double x) { return call(x); }
PLAIT_VM_LIBM(exp2, exp2)
PLAIT_VM_LIBM(expm1, expm1)
PLAIT_VM_LIBM(log1p, log1p)
PLAIT_VM_LIBM(log2, log2)
PLAIT_VM_LIBM(log10, log10)
PLAIT_VM_LIBM(sinh, sinh)
PLAIT_VM_LIBM(cosh, cosh)
PLAIT_VM_LIBM(asinh, asinh)
PLAIT_VM_LIBM(acosh, acosh)
PLAIT_VM_LIBM(atanh, atanh)
PLAIT_VM_LIBM(erf, erf)
PLAIT_VM_LIBM(erfc, erfc)
PLAIT_VM_LIBM(sqrt, sqrt)
PLAIT_VM_LIBM(floor, floor)
PLAIT_VM_LIBM(ceil, ceil)
PLAIT_VM_LIBM(trunc, trunc)
PLAIT_VM_LIBM(round, nearbyint)
#undef PLAIT_VM_LIBM

PLAIT_INLINE double plait_vm_pow(double x, double y) { return pow(x, y); }
PLAIT_INLINE double plait_vm_fmod(double x, double y) { return fmod(x, y); }

PLAIT_INLINE double plait_vm_rsqrt(double x) { return 1.0 / sqrt(x); }

PLAIT_INLINE double plait_vm_softplus(double x) { return (x < 0.0 ? 0.0 : x) + log1p(exp(-fabs(x))); }

PLAIT_INLINE double plait_vm_logsigmoid(double x) { return -plait_vm_softplus(-x); }

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

// Halley steps from an approximation within 2^-28, or from the leading terms of the expansion near 1.
PLAIT_INLINE double plait_vm_erfinv(double x) {
  double a = fabs(x), y = plait_vm_wide_erfinv(a);
  if (!(a < 1.0)) return copysign(y, x);
  double left = -log(1.0 - a);
  if (left > 14.0) y = sqrt(left - 0.5 * log(0x1.921fb54442d18p+1 * left));
  for (int i = 0; i < 3; i++) {
    double excess = a < 0.5 ? erf(y) - a : (1.0 - a) - erfc(y);
    double step = excess / (0x1.20dd750429b6dp+0 * exp(-y * y));
    y -= step / (1.0 + y * step);
  }
  return copysign(y, x);
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
