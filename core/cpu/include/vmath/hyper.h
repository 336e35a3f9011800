// Hyperbolic functions and their inverses; tanh is with the exponentials.
#ifndef PLAIT_VMATH_HYPER_H
#define PLAIT_VMATH_HYPER_H

#include "wide.h"

// sinh(x), within 1 ulp.
PLAIT_INLINE float plait_vm_sinhf(float x) {
  double v = plait_vm_at_most(plait_vm_abs((double)x), 100.0), t = v * v;
  double p = 0x1.b68b5c439daf5p-26;
  p = p * t + 0x1.71cc6fc81c076p-19;
  p = p * t + 0x1.a01a24c0584a8p-13;
  p = p * t + 0x1.111110f2e8302p-7;
  p = p * t + 0x1.5555555576d03p-3;
  double e = plait_vm_wide_exp(v);
  double y = plait_vm_pick(v < 1.0, v + v * t * p, 0.5 * (e - 1.0 / e));
  return (float)plait_vm_copysign(y, (double)x);
}

// cosh(x), within 1 ulp.
PLAIT_INLINE float plait_vm_coshf(float x) {
  double e = plait_vm_wide_exp(plait_vm_at_most(plait_vm_abs((double)x), 100.0));
  return (float)(0.5 * (e + 1.0 / e));
}

// asinh(x), within 1 ulp.
PLAIT_INLINE float plait_vm_asinhf(float x) {
  double a = plait_vm_abs((double)x), t = a * a;
  // sqrt(1 + t) - 1 without cancellation.
  double y = plait_vm_wide_log1p(a + t / (1.0 + sqrt(1.0 + t)));
  y = plait_vm_pick(a < PLAIT_VM_INF, y, a);
  return (float)plait_vm_copysign(y, (double)x);
}

// acosh(x), within 1 ulp; NaN below 1.
PLAIT_INLINE float plait_vm_acoshf(float x) {
  double t = (double)x - 1.0;
  double y = plait_vm_wide_log1p(t + sqrt(t * (t + 2.0)));
  y = plait_vm_pick(t < 0.0, PLAIT_VM_NAN, y);
  return (float)plait_vm_pick(t < PLAIT_VM_INF, y, t);
}

// atanh(x), within 1 ulp; NaN outside [-1, 1].
PLAIT_INLINE float plait_vm_atanhf(float x) {
  double a = plait_vm_abs((double)x);
  double y = 0.5 * plait_vm_wide_log1p(2.0 * a / (1.0 - a));
  y = plait_vm_pick(a < 1.0, y, PLAIT_VM_NAN);
  y = plait_vm_pick(a == 1.0, PLAIT_VM_INF, y);
  return (float)plait_vm_copysign(y, (double)x);
}

#endif
