// pow of float64.
#ifndef PLAIT_VMATH_DOUBLE_POW_H
#define PLAIT_VMATH_DOUBLE_POW_H

#include "double_erf.h"

// log(1 + f) + e ln 2 to 2^-63 of it: with s = f / (2 + f), a series in odd powers of s, of which the first two are sums.
PLAIT_INLINE plait_vm_sum plait_vm_log_precise(double f, double e) {
  plait_vm_sum s = plait_vm_divide_sums((plait_vm_sum){f, 0.0}, plait_vm_two_sum(2.0, f));
  double z = s.high * s.high;
  double p = 0x1.e5aedf3dc3291p-4;
  p = p * z + 0x1.dedec29edd3c4p-4;
  p = p * z + 0x1.111c572616e77p-3;
  p = p * z + 0x1.3b1380cd7dfeep-3;
  p = p * z + 0x1.745d17bd8f2a0p-3;
  p = p * z + 0x1.c71c71c67bcf0p-3;
  p = p * z + 0x1.24924924927b4p-2;
  p = p * z + 0x1.9999999999999p-2;
  // 2/3 s^3, with few bits of both 2/3 and s in the large part.
  double a = plait_vm_head(s.high, 11), b = (s.high - a) + s.low, cube = a * a * a;
  double rest = cube * -0x1.5555555555555p-16 + b * (z + a * (a + s.high)) * 0x1.5555555555555p-1;
  plait_vm_sum y = plait_vm_two_sum(e * 0x1.62e42fefa3800p-1, 2.0 * s.high), r = plait_vm_two_sum(y.high, cube * 0x1.5558p-1);
  double low = 2.0 * s.low + (rest + (s.high * z * z * p + e * 0x1.ef35793c76730p-45));
  return plait_vm_two_sum(r.high, (r.low + y.low) + low);
}

// x to the power y, within 0.65 ulp, or 0.8 if the result is subnormal, with every special case of C99.
PLAIT_INLINE double plait_vm_pow(double x, double y) {
  double base = plait_vm_abs(x), e, f = plait_vm_log_split(base, &e);
  plait_vm_sum l = plait_vm_log_precise(f, e);
  // From 2^64 on, a power of any base but 1 is 0 or infinite.
  double power = plait_vm_limited(y, -0x1p64, 0x1p64);
  double head = plait_vm_head(power, 25), log_head = plait_vm_head(l.high, 25);
  plait_vm_sum t = plait_vm_two_sum(head * log_head, (head * (l.high - log_head) + (power - head) * l.high) + power * l.low);
  t.low = plait_vm_pick(plait_vm_abs(t.high) < 800.0, t.low, 0.0);
  t.high = plait_vm_limited(t.high, -750.0, 715.0);
  double r = plait_vm_exp_sum(t);
  r = plait_vm_pick((base == 0.0) | (base == PLAIT_VM_INF), plait_vm_pick((base == 0.0) != (y < 0.0), 0.0, PLAIT_VM_INF), r);
  // Which exponents are integers and odd integers: from 2^52 on all are integers, and from 2^53 on they are even.
  double capped = plait_vm_at_most(plait_vm_abs(y), 0x1p53), rounded = capped + 0x1p52;
  bool large = capped >= 0x1p52, whole = large | (rounded - 0x1p52 == capped);
  uint64_t sign = (plait_vm_bits(plait_vm_pick(large, capped, rounded)) << 63) & plait_vm_bits(x);
  r = plait_vm_from_bits(plait_vm_bits(r) | plait_vm_bits(plait_vm_pick(whole, plait_vm_from_bits(sign), 0.0)));
  r = plait_vm_pick((x < 0.0) & !whole & (base < PLAIT_VM_INF), PLAIT_VM_NAN, r);
  r = plait_vm_pick((x != x) | (y != y), x + y, r);
  return plait_vm_pick((x == 1.0) | (y == 0.0), 1.0, r);
}

#endif
