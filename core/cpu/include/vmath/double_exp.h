// Exponentials and hyperbolic functions of float64.
//
// The polynomials here and in the other files of float64 are minimax fits: Remez's exchange in 50 digits, where each
// coefficient, from the lowest on, is rounded before the others are fitted again.
#ifndef PLAIT_VMATH_DOUBLE_EXP_H
#define PLAIT_VMATH_DOUBLE_EXP_H

#include "sum.h"

// x less its multiple n ln 2 for *t = n + rounder, so that |x| <= ln 2 / 2 is left. n times the first part of ln 2 is exact.
PLAIT_INLINE plait_vm_sum plait_vm_exp_split(plait_vm_sum x, double rounder, double *t) {
  *t = x.high * 0x1.71547652b82fep+0 + rounder;
  double n = *t - rounder;
  return (plait_vm_sum){x.high - n * 0x1.62e42feep-1, x.low - n * 0x1.a39ef35793c76p-33};
}

// A sum whose high part has few bits.
typedef struct {
  double high, middle, low;
} plait_vm_exp_parts;

// Writes exp(r) and exp(-r) for |r| <= ln 2 / 2. With a near r, the high parts are 1 + a + a^2 / 2, of 42 bits, and the middle
// ones r - a.
PLAIT_INLINE void plait_vm_exp_both(plait_vm_sum r, plait_vm_exp_parts *plus, plait_vm_exp_parts *minus) {
  double v = r.high + r.low, z = v * v;
  double even = 0x1.af60726d54a23p-26, odd = 0x1.1f967483b092bp-29;
  even = even * z + 0x1.71ddf776df546p-19;
  odd = odd * z + 0x1.27e4c58dea471p-22;
  even = even * z + 0x1.a01a01b031474p-13;
  odd = odd * z + 0x1.a01a01b0557f9p-16;
  even = even * z + 0x1.111111110f611p-7;
  odd = odd * z + 0x1.6c16c16c147cap-10;
  even = even * z + 0x1.5555555555559p-3;
  odd = odd * z + 0x1.5555555555559p-5;
  double a = plait_vm_near_multiple20(r.high), b = (r.high - a) + r.low;
  double square = 0.5 * (a * a), rest = b * (0.5 * (a + v)), cube = v * z;
  *plus = (plait_vm_exp_parts){(1.0 + a) + square, b, rest + cube * (even + v * odd)};
  *minus = (plait_vm_exp_parts){(1.0 - a) + square, -b, rest - cube * (even - v * odd)};
}

PLAIT_INLINE plait_vm_exp_parts plait_vm_exp_near(plait_vm_sum r) {
  plait_vm_exp_parts plus, minus;
  plait_vm_exp_both(r, &plus, &minus);
  return plus;
}

// (exp(r) - 1 - r) / r^2 for |r| <= ln 2 / 2 and z = r^2.
PLAIT_INLINE double plait_vm_exp_tail(double r, double z) {
  double p = 0x1.28a01903d22b7p-22, q = 0x1.af7ef7143b4ccp-26;
  q = q * z + 0x1.71dde5451f7f3p-19;
  p = p * z + 0x1.a019aa9aed2a3p-16;
  q = q * z + 0x1.a01a01b7b1399p-13;
  p = p * z + 0x1.6c16c17cf2a33p-10;
  q = q * z + 0x1.111111110e274p-7;
  p = p * z + 0x1.555555555316fp-5;
  q = q * z + 0x1.555555555555dp-3;
  return (p * r + q) * r + 0.5;
}

// Writes *e, which is nearly exp(r), and returns the small rest of it, for |r| <= ln 2 / 2.
PLAIT_INLINE double plait_vm_exp_rest(plait_vm_sum r, double *e) {
  double v = r.high + r.low, z = v * v;
  *e = 1.0 + r.high;
  return ((r.high - (*e - 1.0)) + r.low) + z * plait_vm_exp_tail(v, z);
}

// y 2^n for t = n + PLAIT_VM_EXP_ROUNDER and |n| < 1100. 2^n is a product of two factors, so that a subnormal result is rounded once.
#define PLAIT_VM_EXP_ROUNDER (PLAIT_VM_ROUNDER + 2046.0)
PLAIT_INLINE double plait_vm_exp_scale(double y, double t) {
  uint64_t n = plait_vm_bits(t), half = n >> 1;
  return y * plait_vm_from_bits(half << 52) * plait_vm_from_bits((n - half) << 52);
}

// exp(x) 2^-n for a sum x and *t = n + rounder, within 0.67 ulp.
PLAIT_INLINE double plait_vm_exp_fraction(plait_vm_sum x, double rounder, double *t) {
  plait_vm_sum r = plait_vm_exp_split(x, rounder, t);
  double e, rest = plait_vm_exp_rest(r, &e);
  return e + rest;
}

// Whether plait_vm_near_exp does not take x.
PLAIT_INLINE uint64_t plait_vm_far_exp(double x) { return (plait_vm_bits(x) & INT64_MAX) >= 0x4086200000000000u; }

// exp(x) for |x| < 708, within 0.67 ulp.
PLAIT_INLINE double plait_vm_near_exp(double x) {
  double t, y = plait_vm_exp_fraction((plait_vm_sum){x, 0.0}, PLAIT_VM_ROUNDER, &t);
  return plait_vm_from_bits(plait_vm_bits(y) + (plait_vm_bits(t) << 52));
}

// exp(x), within 0.67 ulp, or 0.8 if the result is subnormal. Infinity is put in, since the product is finite where it becomes a
// part of a fused multiply-add.
PLAIT_INLINE double plait_vm_exp(double x) {
  double t, y = plait_vm_exp_fraction((plait_vm_sum){plait_vm_at_least(x, -746.0), 0.0}, PLAIT_VM_EXP_ROUNDER, &t);
  return plait_vm_pick(x > 0x1.62e42fefa39efp+9, PLAIT_VM_INF, plait_vm_exp_scale(y, t));
}

// exp(x) for |x| <= 750, within 0.52 ulp, or 0.8 if the result is subnormal.
PLAIT_INLINE double plait_vm_exp_sum(plait_vm_sum x) {
  double t;
  plait_vm_exp_parts e = plait_vm_exp_near(plait_vm_exp_split(x, PLAIT_VM_EXP_ROUNDER, &t));
  return plait_vm_exp_scale(e.high + (e.middle + e.low), t);
}

// 2^(x - n) for *t = n + rounder, within 0.67 ulp.
PLAIT_INLINE double plait_vm_exp2_fraction(double x, double rounder, double *t) {
  *t = x + rounder;
  double r = x - (*t - rounder), a = plait_vm_near_multiple20(r);
  plait_vm_sum y = {a * 0x1.62e42ffp-1, (r - a) * 0x1.62e42fefa39efp-1 - a * 0x1.718432a1b0e26p-35};
  double e, rest = plait_vm_exp_rest(y, &e);
  return e + rest;
}

// Whether plait_vm_near_exp2 does not take x.
PLAIT_INLINE uint64_t plait_vm_far_exp2(double x) { return (plait_vm_bits(x) & INT64_MAX) >= 0x408fe80000000000u; }

// 2^x for |x| < 1021, within 0.67 ulp.
PLAIT_INLINE double plait_vm_near_exp2(double x) {
  double t, y = plait_vm_exp2_fraction(x, PLAIT_VM_ROUNDER, &t);
  return plait_vm_from_bits(plait_vm_bits(y) + (plait_vm_bits(t) << 52));
}

// 2^x, within 0.67 ulp, or 0.8 if the result is subnormal.
PLAIT_INLINE double plait_vm_exp2(double x) {
  double t, y = plait_vm_exp2_fraction(plait_vm_at_least(x, -1076.0), PLAIT_VM_EXP_ROUNDER, &t);
  return plait_vm_pick(x >= 1024.0, PLAIT_VM_INF, plait_vm_exp_scale(y, t));
}

// exp(x) - 1, within 0.6 ulp.
PLAIT_INLINE double plait_vm_expm1(double x) {
  double t, y = plait_vm_limited(x, -40.0, 709.79);
  plait_vm_exp_parts e = plait_vm_exp_near(plait_vm_exp_split((plait_vm_sum){y, 0.0}, PLAIT_VM_ROUNDER + 1022.0, &t));
  double half = plait_vm_from_bits(plait_vm_bits(t) << 52);  // of 2^n, since 2^1024 is no double
  plait_vm_sum s = plait_vm_any_sum(half * e.high, -0.5), r = plait_vm_two_sum(s.high, half * e.middle);
  return plait_vm_pick(plait_vm_abs(x) < 0x1p-54, x, 2.0 * (r.high + ((r.low + s.low) + half * e.low)));
}

// A quarter of (exp(v) + sign exp(-v)) / 2 for 0 <= v <= 710.48. From there on it is more than a quarter of the largest double.
PLAIT_INLINE double plait_vm_hyperbolic_quarter(double v, double sign) {
  double t;
  plait_vm_exp_parts up, down;
  plait_vm_exp_both(plait_vm_exp_split((plait_vm_sum){plait_vm_at_most(v, 710.48), 0.0}, PLAIT_VM_ROUNDER + 1020.0, &t), &up, &down);
  double a = plait_vm_from_bits(plait_vm_bits(t) << 52);
  double b = sign * plait_vm_from_bits((2040u - plait_vm_bits(plait_vm_at_most(t, PLAIT_VM_ROUNDER + 1080.0))) << 52);
  plait_vm_sum s = plait_vm_two_sum(a * up.high, b * down.high), r = plait_vm_two_sum(s.high, a * up.middle + b * down.middle);
  return r.high + ((r.low + s.low) + (a * up.low + b * down.low));
}

// sinh(x), within 0.56 ulp.
PLAIT_INLINE double plait_vm_sinh(double x) {
  double a = plait_vm_abs(x), y = plait_vm_copysign(4.0 * plait_vm_hyperbolic_quarter(a, -1.0), x);
  return plait_vm_pick(a < 0x1p-28, x, y);
}

// cosh(x), within 0.53 ulp.
PLAIT_INLINE double plait_vm_cosh(double x) {
  double a = plait_vm_abs(x), y = 4.0 * plait_vm_hyperbolic_quarter(a, 1.0);
  return plait_vm_pick(a > 0x1.633ce8fb9f87dp+9, PLAIT_VM_INF, y);
}

// tanh(x), within 0.6 ulp: (exp(2 x) - 1) / (exp(2 x) + 1). From 22 on the result is 1.
PLAIT_INLINE double plait_vm_tanh(double x) {
  double t, v = plait_vm_abs(x);
  plait_vm_sum y = {plait_vm_at_most(2.0 * v, 44.0), 0.0};
  plait_vm_exp_parts e = plait_vm_exp_near(plait_vm_exp_split(y, PLAIT_VM_ROUNDER + 1023.0, &t));
  double power = plait_vm_from_bits(plait_vm_bits(t) << 52), middle = power * e.middle, low = power * e.low;
  plait_vm_sum less = plait_vm_two_sum(power * e.high, -1.0), more = plait_vm_two_sum(power * e.high, 1.0);
  plait_vm_sum above = plait_vm_two_sum(less.high, middle), below = plait_vm_two_sum(more.high, middle);
  above = plait_vm_two_sum(above.high, (above.low + less.low) + low);
  below = plait_vm_two_sum(below.high, (below.low + more.low) + low);
  return plait_vm_pick(v < 0x1p-28, x, plait_vm_copysign(plait_vm_divide_sums(above, below).high, x));
}

// 1 / (1 + exp(-x)), within 1.8 ulp, also for subnormal results.
PLAIT_INLINE double plait_vm_sigmoid(double x) {
  double t, f = plait_vm_exp_fraction((plait_vm_sum){plait_vm_at_least(-plait_vm_abs(x), -746.0), 0.0}, PLAIT_VM_EXP_ROUNDER, &t);
  double e = plait_vm_exp_scale(f, t);
  plait_vm_sum d = plait_vm_two_sum(1.0, e);
  double y = plait_vm_pick(x < 0.0, e, 1.0) / d.high;
  return y - y * d.low;  // nearly y d.low / d.high, since d.low is not 0 only for a small e
}

#endif
