// float64: libm's functions, and ours where libm has none.
#ifndef PLAIT_VMATH_DOUBLE_H
#define PLAIT_VMATH_DOUBLE_H

#include "base.h"

#define PLAIT_VM_LIBM(name, call) \
  PLAIT_INLINE double plait_vm_##name(double x) { return call(x); }
PLAIT_VM_LIBM(exp, exp)
PLAIT_VM_LIBM(exp2, exp2)
PLAIT_VM_LIBM(expm1, expm1)
PLAIT_VM_LIBM(log, log)
PLAIT_VM_LIBM(log1p, log1p)
PLAIT_VM_LIBM(log2, log2)
PLAIT_VM_LIBM(log10, log10)
PLAIT_VM_LIBM(sin, sin)
PLAIT_VM_LIBM(cos, cos)
PLAIT_VM_LIBM(tan, tan)
PLAIT_VM_LIBM(asin, asin)
PLAIT_VM_LIBM(acos, acos)
PLAIT_VM_LIBM(atan, atan)
PLAIT_VM_LIBM(sinh, sinh)
PLAIT_VM_LIBM(cosh, cosh)
PLAIT_VM_LIBM(tanh, tanh)
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
PLAIT_INLINE double plait_vm_atan2(double y, double x) { return atan2(y, x); }
PLAIT_INLINE double plait_vm_fmod(double x, double y) { return fmod(x, y); }

PLAIT_INLINE double plait_vm_rsqrt(double x) { return 1.0 / sqrt(x); }

PLAIT_INLINE double plait_vm_sigmoid(double x) {
  double e = exp(-fabs(x));
  return (x < 0.0 ? e : 1.0) / (1.0 + e);
}

PLAIT_INLINE double plait_vm_softplus(double x) { return (x < 0.0 ? 0.0 : x) + log1p(exp(-fabs(x))); }

PLAIT_INLINE double plait_vm_logsigmoid(double x) { return (x > 0.0 ? 0.0 : x) - log1p(exp(-fabs(x))); }

#endif
