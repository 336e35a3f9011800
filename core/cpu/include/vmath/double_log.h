// Logarithms and inverse hyperbolic functions of float64.
#ifndef PLAIT_VMATH_DOUBLE_LOG_H
#define PLAIT_VMATH_DOUBLE_LOG_H

#include "double_exp.h"

// log((1 + s) / (1 - s)) for |s| <= 0.19 and z = s^2 is 2 s + s z times this.
PLAIT_INLINE double plait_vm_log_tail(double z) {
  double p = 0x1.137db87af953ep-3;
  p = p * z + 0x1.0ee2ae355f465p-3;
  p = p * z + 0x1.3b26662bd6f00p-3;
  p = p * z + 0x1.745cbaafc228cp-3;
  p = p * z + 0x1.c71c72d178d01p-3;
  p = p * z + 0x1.24924923be9b3p-2;
  p = p * z + 0x1.999999999a3c3p-2;
  p = p * z + 0x1.5555555555554p-1;
  return p;
}

// Writes a positive normal x as (1 + f) 2^e with sqrt(1/2) <= 1 + f <= sqrt(2), where 1 + f is exact.
PLAIT_INLINE double plait_vm_near_log_split(double x, double *e) {
  uint64_t bits = plait_vm_bits(x) - 0x3fe6a09e667f3bcdu + (UINT64_C(1024) << 52);
  *e = plait_vm_from_bits((bits >> 52) | 0x4330000000000000u) - (0x1p52 + 1024.0);
  return plait_vm_from_bits((bits & 0xfffffffffffffu) + 0x3fe6a09e667f3bcdu) - 1.0;
}

// The same for subnormal numbers, too.
PLAIT_INLINE double plait_vm_log_split(double x, double *e) {
  bool small = x < 0x1p-1022;
  double f = plait_vm_near_log_split(x * plait_vm_pick(small, 0x1p54, 1.0), e);
  *e -= plait_vm_pick(small, 54.0, 0.0);
  return f;
}

// log(1 + f) - f + f^2 / 2 for such f.
PLAIT_INLINE double plait_vm_log_rest(double f) {
  double s = f / (2.0 + f), z = s * s;
  return s * (0.5 * (f * f) + z * plait_vm_log_tail(z));
}

// log(1 + f) + e ln 2 for a sum f. With a near f, a - a^2 / 2 and its sum with e times the first part of ln 2 are exact.
PLAIT_INLINE plait_vm_sum plait_vm_log_of(plait_vm_sum f, double e) {
  double a = plait_vm_near_multiple20(f.high), b = (f.high - a) + f.low;
  plait_vm_sum y = plait_vm_two_sum(e * 0x1.62e42fefa3800p-1 + (a - 0.5 * (a * a)), b);
  double rest = plait_vm_log_rest(f.high) + e * 0x1.ef35793c76730p-45;
  return (plait_vm_sum){y.high, y.low + (rest - b * (0.5 * (a + f.high)))};
}

// Replaces y, a logarithm of x, where x is outside (0, inf).
PLAIT_INLINE double plait_vm_log_edges(double x, double y) {
  y = plait_vm_pick(x < PLAIT_VM_INF, y, x);
  y = plait_vm_pick(x < 0.0, PLAIT_VM_NAN, y);
  return plait_vm_pick(x == 0.0, -PLAIT_VM_INF, y);
}

// Whether plait_vm_near_log and its like do not take x: numbers that are not positive and normal.
PLAIT_INLINE uint64_t plait_vm_far_log(double x) { return plait_vm_bits(x) - 0x0010000000000000u >= 0x7fe0000000000000u; }

PLAIT_INLINE double plait_vm_natural_log(double f, double e) {
  plait_vm_sum y = plait_vm_log_of((plait_vm_sum){f, 0.0}, e);
  return y.high + y.low;
}

// The logarithm of (1 + f) 2^e to a base of which 1 / log(base) is c1 + c2, and log(2) / log(base) e1 + e2.
PLAIT_INLINE double plait_vm_log_to_base(double f, double e, double c1, double c2, double e1, double e2) {
  double a = plait_vm_head(f, 25), b = f - a;
  plait_vm_sum y = plait_vm_two_sum(e * e1, a * c1), r = plait_vm_two_sum(y.high, 0.5 * (a * a) * -(c1 + c2));
  double rest = b + (plait_vm_log_rest(f) - b * (0.5 * (a + f)));
  return r.high + ((r.low + y.low) + (rest * (c1 + c2) + (a * c2 + e * e2)));
}

PLAIT_INLINE double plait_vm_binary_log(double f, double e) {
  return plait_vm_log_to_base(f, e, 0x1.715476p+0, 0x1.4ae0bf85ddf44p-26, 1.0, 0.0);
}

PLAIT_INLINE double plait_vm_decimal_log(double f, double e) {
  return plait_vm_log_to_base(f, e, 0x1.bcb7b1p-2, 0x1.49b9438ca9aaep-28, 0x1.34413509f8000p-2, -0x1.80433b83b532ap-44);
}

#define PLAIT_VM_LOG(name, log)                               \
  PLAIT_INLINE double plait_vm_near_##name(double x) {        \
    double e, f = plait_vm_near_log_split(x, &e);             \
    return log(f, e);                                         \
  }                                                           \
  PLAIT_INLINE double plait_vm_##name(double x) {             \
    double e, f = plait_vm_log_split(x, &e);                  \
    return plait_vm_log_edges(x, log(f, e));                  \
  }
// log(x), within 0.65 ulp, and log2(x) and log10(x), within 0.8 ulp; exact for powers of 2 and 10.
PLAIT_VM_LOG(log, plait_vm_natural_log)
PLAIT_VM_LOG(log2, plait_vm_binary_log)
PLAIT_VM_LOG(log10, plait_vm_decimal_log)
#undef PLAIT_VM_LOG

// log(x) + k ln 2 for a sum x that is positive, normal and finite.
PLAIT_INLINE double plait_vm_log_sum(plait_vm_sum x, double k) {
  double e, f = plait_vm_near_log_split(x.high, &e);
  // 2^-e comes from the double e + 2^52.
  uint64_t exponent = UINT64_C(1023) - plait_vm_bits(e + PLAIT_VM_ROUNDER);
  double scale = plait_vm_pick(x.high < 0x1p1000, plait_vm_from_bits(exponent << 52), 0.0);
  plait_vm_sum y = plait_vm_log_of(plait_vm_two_sum(f, x.low * scale), e + k);
  return y.high + y.low;
}

// log(1 + x), within 0.65 ulp.
PLAIT_INLINE double plait_vm_log1p(double x) {
  double y = plait_vm_log_sum(plait_vm_any_sum(1.0, x), 0.0);
  y = plait_vm_pick(x < PLAIT_VM_INF, y, x);
  y = plait_vm_pick(x < -1.0, PLAIT_VM_NAN, y);
  y = plait_vm_pick(x == -1.0, -PLAIT_VM_INF, y);
  return plait_vm_pick(plait_vm_abs(x) < 0x1p-54, x, y);
}

// log(1 + exp(x)), within 1.5 ulp.
PLAIT_INLINE double plait_vm_softplus(double x) {
  double y = plait_vm_pick(x < 0.0, 0.0, x) + plait_vm_log1p(plait_vm_exp(-plait_vm_abs(x)));
  return plait_vm_pick(x == x, y, x);
}

// log(1 / (1 + exp(-x))), within 1.5 ulp.
PLAIT_INLINE double plait_vm_logsigmoid(double x) { return -plait_vm_softplus(-x); }

// asinh(x), within 1 ulp: the logarithm of a + sqrt(a^2 + 1), of which a^2 / (1 + sqrt(a^2 + 1)) + 1 is the root.
PLAIT_INLINE double plait_vm_asinh(double x) {
  double a = plait_vm_abs(x), t = a * a;
  bool large = a > 0x1p60;
  double root = plait_vm_pick(large, 0.0, t / (1.0 + sqrt(1.0 + t)));
  plait_vm_sum one = plait_vm_any_sum(1.0, a), s = plait_vm_any_sum(one.high, root);
  double y = plait_vm_log_sum((plait_vm_sum){s.high, one.low + s.low}, plait_vm_pick(large, 1.0, 0.0));
  return plait_vm_pick((a >= 0x1p-28) & (a < PLAIT_VM_INF), plait_vm_copysign(y, x), x);
}

// acosh(x), within 1.3 ulp: the logarithm of x + sqrt(x^2 - 1); NaN below 1.
PLAIT_INLINE double plait_vm_acosh(double x) {
  double t = x - 1.0;
  bool large = x > 0x1p60;
  plait_vm_sum square = plait_vm_any_sum(2.0 * t, t * t);
  double root = sqrt(square.high), head = plait_vm_head(root, 25);
  double rest = ((square.high - head * head) - (root - head) * (root + head)) + square.low;
  plait_vm_sum s = plait_vm_any_sum(x, plait_vm_pick(large, 0.0, root));
  s.low += plait_vm_pick(large, 0.0, 0.5 * rest / plait_vm_at_least(root, 0x1p-100));
  double y = plait_vm_log_sum(s, plait_vm_pick(large, 1.0, 0.0));
  return plait_vm_pick(x < PLAIT_VM_INF, plait_vm_pick(x < 1.0, PLAIT_VM_NAN, y), x);
}

// atanh(x), within 0.55 ulp; NaN outside [-1, 1]. It is half the logarithm of (1 + a) / (1 - a) = 2^e (1 + s) / (1 - s).
PLAIT_INLINE double plait_vm_atanh(double x) {
  double a = plait_vm_abs(x), h = 0.5 - 0.5 * a;
  plait_vm_sum above = plait_vm_two_sum(1.0, a), below = plait_vm_two_sum(1.0, -a);
  // e is the exponent of the reciprocal of an approximation of h / (1 - h).
  double ratio = h * (((0x1.c6597858813e7p+1 * h - 0x1.3a319f4b37417p-14) * h + 0x1.1bf3540cee16dp+0) * h + 0x1.ff1ce13e985dbp-1);
  uint64_t n = (plait_vm_bits(ratio) - 0x3fe6a09e667f3bcdu + (UINT64_C(1024) << 52)) >> 52;
  double e = (0x1p52 + 1024.0) - plait_vm_from_bits(n | 0x4330000000000000u);
  double power = plait_vm_from_bits((2047u - n) << 52);
  below.high *= power;
  below.low *= power;
  plait_vm_sum d = plait_vm_any_sum(above.high, -below.high), s = plait_vm_any_sum(above.high, below.high);
  d = plait_vm_two_sum(d.high, d.low + (above.low - below.low));
  s = plait_vm_two_sum(s.high, s.low + (above.low + below.low));
  plait_vm_sum q = plait_vm_divide_sums(d, s);
  double z = q.high * q.high, tail = 0.5 * (q.high * z * plait_vm_log_tail(z));
  plait_vm_sum y = plait_vm_two_sum(e * 0x1.62e42fefa3800p-2, q.high);
  double r = y.high + (y.low + (q.low + (tail + e * 0x1.ef35793c76730p-46)));
  r = plait_vm_pick(a < 1.0, r, plait_vm_pick(a == 1.0, PLAIT_VM_INF, PLAIT_VM_NAN));
  return plait_vm_pick(a < 0x1p-28, x, plait_vm_copysign(r, x));
}

#endif
