// Sums of two doubles. Products in a high part have few enough bits to be exact, so that fused multiply-adds change no more
// than the last rounding.
#ifndef PLAIT_VMATH_SUM_H
#define PLAIT_VMATH_SUM_H

#include "base.h"

// A sum of two doubles, of which the second is small.
typedef struct {
  double high, low;
} plait_vm_sum;

// a + b for |a| >= |b|, or where the sum is exact.
PLAIT_INLINE plait_vm_sum plait_vm_two_sum(double a, double b) {
  double high = a + b;
  return (plait_vm_sum){high, (a - high) + b};
}

// a + b.
PLAIT_INLINE plait_vm_sum plait_vm_any_sum(double a, double b) {
  double high = a + b, near = high - a;
  return (plait_vm_sum){high, (a - (high - near)) + (b - near)};
}

PLAIT_INLINE plait_vm_sum plait_vm_pick_sum(bool c, plait_vm_sum a, plait_vm_sum b) {
  return (plait_vm_sum){plait_vm_pick(c, a.high, b.high), plait_vm_pick(c, a.low, b.low)};
}

// x with a fraction of at most `bits` bits.
PLAIT_INLINE double plait_vm_head(double x, int bits) {
  return plait_vm_from_bits(plait_vm_bits(x) >> (52 - bits) << (52 - bits));
}

// The multiple of 2^-20 near x, for |x| < 2^6. Its square is exact.
PLAIT_INLINE double plait_vm_near_multiple20(double x) { return (x + 0x1.8p32) - 0x1.8p32; }

// The quotient of two sums, given nearly 1 / y: its first bits, and what they leave of the dividend over the divisor.
PLAIT_INLINE plait_vm_sum plait_vm_divide_by(plait_vm_sum x, plait_vm_sum y, double inverse) {
  double q = plait_vm_head(x.high * inverse, 22), d = plait_vm_head(y.high, 26);
  double rest = ((x.high - q * d) - q * (y.high - d)) + (x.low - q * y.low);
  return plait_vm_two_sum(q, rest * inverse);
}

PLAIT_INLINE plait_vm_sum plait_vm_divide_sums(plait_vm_sum x, plait_vm_sum y) {
  return plait_vm_divide_by(x, y, 1.0 / y.high);
}

#endif
