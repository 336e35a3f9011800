// Circular functions of float64 and their inverses.
#ifndef PLAIT_VMATH_DOUBLE_TRIG_H
#define PLAIT_VMATH_DOUBLE_TRIG_H

#include "sum.h"

// Whether plait_vm_near_sin and its like do not take x.
PLAIT_INLINE uint64_t plait_vm_far_trig(double x) { return (plait_vm_bits(x) & INT64_MAX) >= 0x4130000000000000u; }

// Writes x as n pi/2 + r with |r| <= pi/4, for |x| < 2^20. pi/2 has four parts, of which three have so few bits that their
// products, and differences of nearly equal numbers, are exact.
PLAIT_INLINE plait_vm_sum plait_vm_double_quarters(double x, uint64_t *n) {
  double t = x * 0x1.45f306dc9c883p-1 + PLAIT_VM_ROUNDER, k = t - PLAIT_VM_ROUNDER;
  *n = plait_vm_bits(t);
  plait_vm_sum a = plait_vm_two_sum(x - k * 0x1.921fb544p+0, -(k * 0x1.0b4611a6p-34));
  plait_vm_sum b = plait_vm_two_sum(a.high, -(k * 0x1.3198a2ep-69));
  return (plait_vm_sum){b.high, (a.low + b.low) - k * 0x1.b839a252049c1p-104};
}

// The multiple of 2^-11 near r.
PLAIT_INLINE double plait_vm_near_multiple(plait_vm_sum r) { return (r.high + 0x1.8p41) - 0x1.8p41; }

// sin(r) for |r| <= pi/4, with r near a, a multiple of 2^-11. a^3 / 6 with 17 bits of 1/6 is exact.
PLAIT_INLINE plait_vm_sum plait_vm_sin_sum(plait_vm_sum r) {
  double a = plait_vm_near_multiple(r), b = (r.high - a) + r.low, z = r.high * r.high;
  double p = -0x1.ab93d49f91603p-41;
  p = p * z + 0x1.61225b0525a0fp-33;
  p = p * z - 0x1.ae645533efd62p-26;
  p = p * z + 0x1.71de3a550ca29p-19;
  p = p * z - 0x1.a01a01a019ed6p-13;
  p = p * z + 0x1.1111111111111p-7;
  p = p * z - 0x1.5555555555555p-21;
  plait_vm_sum y = plait_vm_two_sum(r.high, a * a * a * -0x1.5555p-3);
  double cubes = b * (a * a + (r.high + a) * r.high);  // of r less those of a
  return (plait_vm_sum){y.high, y.low + ((r.low - cubes * 0x1.5555p-3) + r.high * z * p)};
}

// cos(r) likewise. 1 - a^2 / 2 + a^4 / 24 with 5 bits of 1/24 is exact.
PLAIT_INLINE plait_vm_sum plait_vm_cos_sum(plait_vm_sum r) {
  double a = plait_vm_near_multiple(r), b = (r.high - a) + r.low, z = r.high * r.high;
  double p = -0x1.907d7aebd5e3dp-37;
  p = p * z + 0x1.1eeb68b109173p-29;
  p = p * z - 0x1.27e4fa17a41b4p-22;
  p = p * z + 0x1.a01a019f4e867p-16;
  p = p * z - 0x1.6c16c16c16966p-10;
  p = p * z + 0x1.5555555555550p-11;
  plait_vm_sum y = plait_vm_two_sum(1.0, a * a * (a * a * 0x1.5p-5 - 0.5));
  double squares = b * (r.high + a);  // of r less those of a
  return (plait_vm_sum){y.high, y.low + (squares * ((z + a * a) * 0x1.5p-5 - 0.5) + z * z * p)};
}

// sin(x), within 0.52 ulp.
PLAIT_INLINE double plait_vm_near_sin(double x) {
  uint64_t n;
  plait_vm_sum r = plait_vm_double_quarters(x, &n);
  plait_vm_sum s = plait_vm_pick_sum(n & 1u, plait_vm_cos_sum(r), plait_vm_sin_sum(r));
  double y = plait_vm_from_bits(plait_vm_bits(s.high + s.low) ^ ((n & 2u) << 62));
  return plait_vm_pick(x == 0.0, x, y);
}

// cos(x), within 0.52 ulp.
PLAIT_INLINE double plait_vm_near_cos(double x) {
  uint64_t n;
  plait_vm_sum r = plait_vm_double_quarters(x, &n);
  plait_vm_sum s = plait_vm_pick_sum(n & 1u, plait_vm_sin_sum(r), plait_vm_cos_sum(r));
  return plait_vm_from_bits(plait_vm_bits(s.high + s.low) ^ (((n + 1u) & 2u) << 62));
}

// tan(x), within 0.54 ulp.
PLAIT_INLINE double plait_vm_near_tan(double x) {
  uint64_t n;
  plait_vm_sum r = plait_vm_double_quarters(x, &n), s = plait_vm_sin_sum(r), c = plait_vm_cos_sum(r);
  bool odd = n & 1u;
  plait_vm_sum above = plait_vm_pick_sum(odd, c, s), below = plait_vm_pick_sum(odd, s, c);
  double y = plait_vm_divide_sums(plait_vm_two_sum(above.high, above.low), plait_vm_two_sum(below.high, below.low)).high;
  return plait_vm_pick(x == 0.0, x, plait_vm_from_bits(plait_vm_bits(y) ^ (n << 63)));
}

// For all arguments.
PLAIT_INLINE double plait_vm_sin(double x) { return plait_vm_far_trig(x) ? sin(x) : plait_vm_near_sin(x); }
PLAIT_INLINE double plait_vm_cos(double x) { return plait_vm_far_trig(x) ? cos(x) : plait_vm_near_cos(x); }
PLAIT_INLINE double plait_vm_tan(double x) { return plait_vm_far_trig(x) ? tan(x) : plait_vm_near_tan(x); }

// The multiple k of pi/4 plus atan(x), for |x| <= tan(pi/8).
PLAIT_INLINE double plait_vm_atan_sum(plait_vm_sum x, double k) {
  double a = plait_vm_near_multiple(x), b = (x.high - a) + x.low, z = x.high * x.high;
  double p = 0x1.1f84385d76aa1p-6;
  p = p * z - 0x1.24c156e52e801p-5;
  p = p * z + 0x1.78aa2b839ea1dp-5;
  p = p * z - 0x1.ad544156ded3dp-5;
  p = p * z + 0x1.e1b8338c5804cp-5;
  p = p * z - 0x1.110fdce502ea1p-4;
  p = p * z + 0x1.3b13a60f9f1bfp-4;
  p = p * z - 0x1.745d170915192p-4;
  p = p * z + 0x1.c71c71c6727e0p-4;
  p = p * z - 0x1.2492492491ec2p-3;
  p = p * z + 0x1.9999999999999p-3;
  p = p * z - 0x1.5555555555555p-20;
  plait_vm_sum y = plait_vm_two_sum(x.high, a * a * a * -0x1.5555p-2);
  double cubes = b * (a * a + (x.high + a) * x.high);  // of x less those of a
  double low = y.low + ((x.low - cubes * 0x1.5555p-2) + x.high * z * p);
  plait_vm_sum s = plait_vm_two_sum(k * 0x1.921fb54442d18p-1, y.high);
  return s.high + (s.low + (low + k * 0x1.1a62633145c07p-55));
}

// atan(x), within 0.53 ulp.
PLAIT_INLINE double plait_vm_atan(double x) {
  // The tangent of the angle, less a multiple of pi / 4.
  double v = plait_vm_at_most(plait_vm_abs(x), 0x1p60);
  bool middle = v > 0x1.a827999fcef32p-2, steep = v > 0x1.3504f333f9de6p+1;
  plait_vm_sum none = {-1.0, 0.0}, all = {v, 0.0};
  plait_vm_sum above = plait_vm_pick_sum(steep, none, plait_vm_two_sum(plait_vm_pick(middle, -1.0, 0.0), v));
  plait_vm_sum below = plait_vm_pick_sum(steep, all, plait_vm_two_sum(1.0, plait_vm_pick(middle, v, 0.0)));
  double y = plait_vm_atan_sum(plait_vm_divide_sums(above, below), plait_vm_pick(steep, 2.0, plait_vm_pick(middle, 1.0, 0.0)));
  return plait_vm_copysign(y, x);
}

// atan2(y, x), within 0.55 ulp, or 1.5 if the result is subnormal.
PLAIT_INLINE double plait_vm_atan2(double y, double x) {
  double v = plait_vm_abs(y), u = plait_vm_abs(x);
  bool high = v > u;
  double small = plait_vm_pick(high, u, v), large = plait_vm_pick(high, v, u);
  // A quotient of two infinities or two zeros is taken as 1 or 0.
  bool infinite = large == PLAIT_VM_INF;
  small = plait_vm_pick(infinite, plait_vm_pick(small == PLAIT_VM_INF, 1.0, 0.0), small);
  large = plait_vm_pick(infinite | (large == 0.0), 1.0, large);
  // Scaled by a power of two, the larger is near 1.
  int64_t exponent = (int64_t)(plait_vm_bits(large) >> 52);
  exponent = exponent < 23 ? 23 : exponent > 2023 ? 2023 : exponent;
  double scale = plait_vm_from_bits((uint64_t)(2046 - exponent) << 52);
  small *= scale;
  large *= scale;
  bool steep = small > 0x1.a827999fcef32p-2 * large;
  plait_vm_sum above = plait_vm_two_sum(plait_vm_pick(steep, -large, 0.0), small);
  plait_vm_sum below = plait_vm_two_sum(large, plait_vm_pick(steep, small, 0.0));
  // The angle is k pi / 4 plus or minus an arc tangent.
  double k = plait_vm_pick(steep, 1.0, 0.0), sign = plait_vm_copysign(1.0, x);
  k = plait_vm_pick(high, 2.0 - k, k);
  k = plait_vm_pick(sign < 0.0, 4.0 - k, k);
  sign = plait_vm_pick(high, -sign, sign);
  plait_vm_sum t = plait_vm_divide_sums((plait_vm_sum){sign * above.high, sign * above.low}, below);
  double r = plait_vm_copysign(plait_vm_atan_sum(t, k), y);
  return plait_vm_pick((x != x) | (y != y), x + y, r);
}

// sqrt(x) for 2^-60 < x <= 1 or x = 0, by steps from an approximation of 1 / sqrt(x), which take less time than the instruction.
PLAIT_INLINE plait_vm_sum plait_vm_sqrt_sum(double x) {
  double r = plait_vm_from_bits(0x5fe6eb50c7b537a9u - (plait_vm_bits(x) >> 1));
  double e = 1.0 - x * r * r;
  r += r * e * (((0.2734375 * e + 0.3125) * e + 0.375) * e + 0.5);
  e = 1.0 - x * r * r;
  r += r * e * (0.375 * e + 0.5);
  double root = plait_vm_head(x * r, 25);
  double low = (x - root * root) * (0.5 * r);
  return (plait_vm_sum){root, low + low * low * (0.5 * r)};
}

// asin(x) - x for |x| <= 1/2 and z = x^2.
PLAIT_INLINE double plait_vm_asin_tail(double x, double z) {
  double p = 0x1.d72b2bc8155f8p-6;
  p = p * z - 0x1.e6aaa8a0a04ccp-7;
  p = p * z + 0x1.1d189408314eep-6;
  p = p * z + 0x1.65a9c4dfcf8b2p-8;
  p = p * z + 0x1.52420b04b37bep-7;
  p = p * z + 0x1.782651caa6547p-7;
  p = p * z + 0x1.c9cf07674736ap-7;
  p = p * z + 0x1.1c4d35cf95421p-6;
  p = p * z + 0x1.6e8bb1c8209a2p-6;
  p = p * z + 0x1.f1c71c1db0623p-6;
  p = p * z + 0x1.6db6db6e31f13p-5;
  p = p * z + 0x1.3333333332ecap-4;
  p = p * z + 0x1.5555555555556p-3;
  return x * z * p;
}

// asin(x), within 0.66 ulp; NaN outside [-1, 1].
PLAIT_INLINE double plait_vm_asin(double x) {
  double a = plait_vm_abs(x), half = 0.5 - 0.5 * a;
  bool outer = a > 0.5;
  plait_vm_sum root = plait_vm_sqrt_sum(half);
  double tail = plait_vm_asin_tail(plait_vm_pick(outer, root.high + root.low, a), plait_vm_pick(outer, half, a * a));
  plait_vm_sum y = plait_vm_two_sum(0x1.921fb54442d18p+0, -2.0 * root.high);
  double far = y.high + (y.low + (0x1.1a62633145c07p-54 - 2.0 * (root.low + tail)));
  return plait_vm_pick(a <= 1.0, plait_vm_copysign(plait_vm_pick(outer, far, a + tail), x), PLAIT_VM_NAN);
}

// acos(x), within 0.65 ulp; NaN outside [-1, 1].
PLAIT_INLINE double plait_vm_acos(double x) {
  double a = plait_vm_abs(x), half = 0.5 - 0.5 * a;
  bool outer = a > 0.5;
  plait_vm_sum root = plait_vm_sqrt_sum(half);
  double s = plait_vm_pick(outer, root.high, x), low = plait_vm_pick(outer, root.low, 0.0);
  low += plait_vm_asin_tail(s + low, plait_vm_pick(outer, half, x * x));
  // It is k pi / 2 + m (s + low).
  double k = plait_vm_pick(outer, plait_vm_pick(x < 0.0, 2.0, 0.0), 1.0);
  double m = plait_vm_pick(outer, plait_vm_pick(x < 0.0, -2.0, 2.0), -1.0);
  plait_vm_sum y = plait_vm_two_sum(k * 0x1.921fb54442d18p+0, m * s);
  double r = y.high + (y.low + (k * 0x1.1a62633145c07p-54 + m * low));
  return plait_vm_pick(a <= 1.0, r, PLAIT_VM_NAN);
}

#endif
