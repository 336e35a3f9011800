// The logarithm of the gamma function and its derivatives.
#ifndef PLAIT_VMATH_GAMMA_H
#define PLAIT_VMATH_GAMMA_H

#include "wide.h"

// log(|Gamma(x)|): within 1 ulp for x > 0; for x < 0, where it has zeros, within 1 ulp or 2^-40.
PLAIT_INLINE float plait_vm_lgammaf(float x) {
  double v = (double)x, a = plait_vm_abs(v);
  // Below 1, Gamma(a) = Gamma(a + 1) / a. Up to 3, a polynomial that is exact at the zeros 1 and 2.
  bool low = a < 1.0;
  double u = a - plait_vm_pick(low, 1.0, 2.0);
  double p = -0x1.6347a31db5992p-23;
  p = p * u + 0x1.5b12521919405p-22;
  p = p * u + 0x1.46475c05cc959p-23;
  p = p * u - 0x1.be185c7bfec99p-23;
  p = p * u - 0x1.66fd070e395a9p-20;
  p = p * u + 0x1.5e2a06d822fc7p-19;
  p = p * u - 0x1.ce8edd3fbbf73p-19;
  p = p * u + 0x1.fefb5e88bb392p-18;
  p = p * u - 0x1.2bc17344f5661p-16;
  p = p * u + 0x1.4287d56f0e748p-15;
  p = p * u - 0x1.5c40f15ac0df9p-14;
  p = p * u + 0x1.7eada252e7b72p-13;
  p = p * u - 0x1.a96d8ba798a89p-12;
  p = p * u + 0x1.dfed733ca5189p-11;
  p = p * u - 0x1.14511714a7424p-9;
  p = p * u + 0x1.479744254d8c2p-8;
  p = p * u - 0x1.95ce225b86a6dp-7;
  p = p * u + 0x1.0e0c9df6b2666p-5;
  p = p * u - 0x1.9ae6509e926edp-4;
  p = p * u + 0x1.b0ee60720891cp-2;
  double near = u * (u + 1.0) * p + 0.0;
  // Above 9, Stirling's series. From 3 to 9, a product of six factors leads to it.
  bool middle = a < 9.0;
  double product = a * (a + 1.0) * (a + 2.0) * (a + 3.0) * (a + 4.0) * (a + 5.0);
  double y = plait_vm_at_least(a + plait_vm_pick(middle, 6.0, 0.0), 9.0);
  double s = 1.0 / y, t = s * s;
  double series = s * (1.0 / 12.0 - t * (1.0 / 360.0 - t * (1.0 / 1260.0 - t * (1.0 / 1680.0))));
  double far = (y - 0.5) * plait_vm_wide_log(y) - y + 0x1.d67f1c864beb5p-1 + series;
  // One logarithm serves both recurrences and the reflection Gamma(-a) Gamma(a) = -pi / (a sin(pi a)).
  double divisor = plait_vm_pick(a < 3.0, plait_vm_pick(low, a, 1.0), plait_vm_pick(middle, product, 1.0));
  double r = plait_vm_pick(a < 3.0, near, far) - plait_vm_wide_log(plait_vm_at_least(divisor, 0x1p-1000));
  double sine, cosine;
  plait_vm_wide_sincospi(a, &sine, &cosine);
  sine = plait_vm_abs(sine);
  double reflected = 0x1.250d048e7a1bdp+0 - plait_vm_wide_log(plait_vm_at_least(a * sine, 0x1p-1000)) - r;
  r = plait_vm_pick(v < 0.0, reflected, r);
  r = plait_vm_pick((v <= 0.0) & (sine == 0.0), PLAIT_VM_INF, r);
  r = plait_vm_pick(a < PLAIT_VM_INF, r, a);
  return (float)r;
}

// The derivative of log(Gamma(x)): within 1 ulp, or 2^-40 near its zeros; NaN at negative integers, -inf at 0, inf at -0.
PLAIT_INLINE float plait_vm_digammaf(float x) {
  double v = (double)x;
  // For x < 1/2, psi(x) = psi(1 - x) - pi / tan(pi x).
  bool mirrored = v < 0.5;
  double a = plait_vm_pick(mirrored, 1.0 - v, v);
  // The sum of 1 / (a + k) for k < 10, as one quotient.
  bool low = a < 10.0;
  double b = plait_vm_at_most(a, 10.0);
  double numerator = 1.0, denominator = b;
#define PLAIT_VM_TERM(k)                                \
  numerator = numerator * (b + (k)) + denominator;      \
  denominator = denominator * (b + (k));
  PLAIT_VM_TERM(1.0)
  PLAIT_VM_TERM(2.0)
  PLAIT_VM_TERM(3.0)
  PLAIT_VM_TERM(4.0)
  PLAIT_VM_TERM(5.0)
  PLAIT_VM_TERM(6.0)
  PLAIT_VM_TERM(7.0)
  PLAIT_VM_TERM(8.0)
  PLAIT_VM_TERM(9.0)
#undef PLAIT_VM_TERM
  double y = plait_vm_pick(low, a + 10.0, a);
  double s = 1.0 / y, t = s * s;
  double series = t * (1.0 / 12.0 - t * (1.0 / 120.0 - t * (1.0 / 252.0 - t * (1.0 / 240.0 - t * (1.0 / 132.0)))));
  double r = plait_vm_wide_log(y) - 0.5 * s - series - plait_vm_pick(low, numerator / denominator, 0.0);
  double sine, cosine;
  plait_vm_wide_sincospi(v, &sine, &cosine);
  r = plait_vm_pick(mirrored, r - 0x1.921fb54442d18p+1 * cosine / sine, r);
  r = plait_vm_pick((v < 0.0) & (sine == 0.0), PLAIT_VM_NAN, r);
  r = plait_vm_pick(v == 0.0, -plait_vm_copysign(PLAIT_VM_INF, v), r);
  r = plait_vm_pick(v == PLAIT_VM_INF, v, r);
  r = plait_vm_pick((v == -PLAIT_VM_INF) | (v != v), PLAIT_VM_NAN, r);
  return (float)r;
}

// Whether plait_vm_near_zetaf does not take s and q.
PLAIT_INLINE uint32_t plait_vm_far_zetaf(float s, float q) { return (uint32_t)!((s == 2.0f) & (q > 0.0f)); }

// zeta(2, q), the derivative of psi, for q > 0, within 1 ulp.
PLAIT_INLINE float plait_vm_near_zetaf(float s, float q) {
  (void)s;
  double v = (double)q;
  // The sum of (q + k)^-2 for k < 6, as one quotient.
  bool low = v < 6.0;
  double b = plait_vm_at_most(v, 6.0);
  double numerator = 1.0, denominator = b * b;
#define PLAIT_VM_TERM(k)                                                     \
  numerator = numerator * ((b + (k)) * (b + (k))) + denominator;             \
  denominator = denominator * ((b + (k)) * (b + (k)));
  PLAIT_VM_TERM(1.0)
  PLAIT_VM_TERM(2.0)
  PLAIT_VM_TERM(3.0)
  PLAIT_VM_TERM(4.0)
  PLAIT_VM_TERM(5.0)
#undef PLAIT_VM_TERM
  double y = 1.0 / (v + plait_vm_pick(low, 6.0, 0.0)), t = y * y;
  double series = 1.0 / 30.0 - t * (5.0 / 66.0 - t * (691.0 / 2730.0));
  series = 1.0 / 6.0 - t * (1.0 / 30.0 - t * (1.0 / 42.0 - t * series));
  return (float)(y + t * (0.5 + y * series) + plait_vm_pick(low, numerator / denominator, 0.0));
}

#endif
