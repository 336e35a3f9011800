// pow.
#ifndef PLAIT_VMATH_POW_H
#define PLAIT_VMATH_POW_H

#include "wide.h"

// Whether plait_vm_near_powf does not take x and y: bases that are not positive, and infinities.
PLAIT_INLINE uint32_t plait_vm_far_powf(float x, float y) {
  return (uint32_t)!((x > 0.0f) & (x < PLAIT_VM_INFF) & (plait_vm_absf(y) < PLAIT_VM_INFF));
}

// exp(t), of which a float is 0 or infinite beyond the limits.
PLAIT_INLINE double plait_vm_pow_of(double t) {
  return plait_vm_wide_exp_short(plait_vm_at_least(plait_vm_at_most(t, 120.0), -120.0));
}

// x to the power y, within 1 ulp, without special cases.
PLAIT_INLINE float plait_vm_near_powf(float x, float y) { return (float)plait_vm_pow_of((double)y * plait_vm_wide_log((double)x)); }

// x to the power y, within 1 ulp, with every special case of C99.
PLAIT_INLINE float plait_vm_powf(float x, float y) {
  double base = plait_vm_abs((double)x), power = (double)y;
  double l = plait_vm_wide_log(plait_vm_pick(base < 0x1p-150, 1.0, base));
  l = plait_vm_pick(base == 0.0, -PLAIT_VM_INF, l);
  l = plait_vm_pick(base < PLAIT_VM_INF, l, base);
  double r = plait_vm_pow_of(power * l);
  // Which exponents are integers and odd integers: from 2^24 on, all floats are even integers.
  double capped = plait_vm_at_most(plait_vm_abs(power), 0x1p25);
  double rounded = capped + PLAIT_VM_ROUNDER;
  double fraction = (rounded - PLAIT_VM_ROUNDER) - capped;
  uint64_t sign = (plait_vm_bits(rounded) << 63) & plait_vm_bits((double)x);
  r = plait_vm_pick(fraction == 0.0, plait_vm_from_bits(plait_vm_bits(r) | sign), r);
  double root = plait_vm_pick(fraction == 0.0, 1.0, (double)x);
  root = plait_vm_pick(base < PLAIT_VM_INF, root, 1.0);
  r = plait_vm_pick(root < 0.0, PLAIT_VM_NAN, r);
  // The other special cases, such as zero to the power infinity, need no correction.
  r = plait_vm_pick(plait_vm_pick(base == 1.0, plait_vm_abs(power), 0.0) == PLAIT_VM_INF, 1.0, r);
  r = plait_vm_pick((double)x == 1.0, 1.0, r);
  return (float)plait_vm_pick(power == 0.0, 1.0, r);
}

#endif
