// pow.
#ifndef PLAIT_VMATH_POW_H
#define PLAIT_VMATH_POW_H

#include "wide.h"

// x to the power y, within 1 ulp, with every special case of C99.
PLAIT_INLINE float plait_vm_powf(float x, float y) {
  double base = plait_vm_abs((double)x), power = (double)y;
  double l = plait_vm_wide_log(plait_vm_pick(base < 0x1p-150, 1.0, base));
  l = plait_vm_pick(base == 0.0, -PLAIT_VM_INF, l);
  l = plait_vm_pick(base < PLAIT_VM_INF, l, base);
  double t = power * l;
  double r = plait_vm_wide_exp(plait_vm_at_least(plait_vm_at_most(t, 120.0), -120.0));
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
