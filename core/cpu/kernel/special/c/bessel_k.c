// The modified Bessel functions of the second kind of floats. The loops say, as simd.h does, that exceptions are not observed.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("no-trapping-math")
#endif
#include "loops.h"

// I0(x) for x^2 = 2 + 2 t, -1 <= t <= 1, to 2^-37.
PLAIT_INLINE double near_i0(double t) {
  double p = 0x1.16072a90fbe9dp-25;
  p = p * t + 0x1.3c817af2cb506p-19;
  p = p * t + 0x1.f6907ab703f0ap-14;
  p = p * t + 0x1.0176616b30284p-8;
  p = p * t + 0x1.2d6c91dedc9edp-4;
  p = p * t + 0x1.458fab1eb969bp-1;
  p = p * t + 0x1.90eacf96209cbp+0;
  return p;
}

// I1(x) / x, likewise.
PLAIT_INLINE double near_i1(double t) {
  double p = 0x1.3af1a8c536c55p-29;
  p = p * t + 0x1.a10fa2f23f8a4p-23;
  p = p * t + 0x1.8b893ed5fcdd2p-17;
  p = p * t + 0x1.f6907a1aa0eb8p-12;
  p = p * t + 0x1.823193f93148ep-7;
  p = p * t + 0x1.2d6c91deeb481p-3;
  p = p * t + 0x1.458fab1e6aadcp-1;
  return p;
}

// K0(x) + log(x) I0(x), likewise.
PLAIT_INLINE double near_k0(double t) {
  double p = 0x1.661b25a12a947p-24;
  p = p * t + 0x1.7ddd19236e9bfp-18;
  p = p * t + 0x1.16c5f60a6f7bdp-12;
  p = p * t + 0x1.fda371d309c0ap-8;
  p = p * t + 0x1.f6ee0ded09bb7p-4;
  p = p * t + 0x1.8fff17fa63943p-1;
  p = p * t + 0x1.9055e0acc3f54p-1;
  return p;
}

// (K1(x) - log(x) I1(x) - 1 / x) / x, likewise.
PLAIT_INLINE double near_k1(double t) {
  double p = -0x1.a09e8e32d77d1p-28;
  p = p * t - 0x1.03fded942472cp-21;
  p = p * t - 0x1.c9b0e3e640fa3p-16;
  p = p * t - 0x1.075f7a0587051p-10;
  p = p * t - 0x1.5f023344d897fp-6;
  p = p * t - 0x1.af79f608df3edp-3;
  p = p * t - 0x1.fe2890c6da2a2p-2;
  return p;
}

// sqrt(x) exp(x) K0(x) for 2 / x = (1 + t) / 2, -1 <= t <= 1, to 2^-31.
PLAIT_INLINE double far_k0(double t) {
  double p = -0x1.bcbdc94fbfdf3p-22;
  p = p * t + 0x1.25f6bff1af8aep-20;
  p = p * t - 0x1.1335f398ba901p-19;
  p = p * t + 0x1.bf2f2fc685fb8p-18;
  p = p * t - 0x1.9fdec95636e44p-16;
  p = p * t + 0x1.a21dd0dfd54d0p-14;
  p = p * t - 0x1.f711394f46f7ep-12;
  p = p * t + 0x1.8d866c280fd95p-9;
  p = p * t - 0x1.fd13283d28a08p-6;
  p = p * t + 0x1.37f5dd375bf95p+0;
  return p;
}

// sqrt(x) exp(x) K1(x), likewise.
PLAIT_INLINE double far_k1(double t) {
  double p = 0x1.0846daa2de4e3p-21;
  p = p * t - 0x1.62beef61739cbp-20;
  p = p * t + 0x1.58749e113425ep-19;
  p = p * t - 0x1.1f55126ac90efp-17;
  p = p * t + 0x1.1406ef899140ep-15;
  p = p * t - 0x1.250d7bc3be704p-13;
  p = p * t + 0x1.81ba2d889661dp-11;
  p = p * t - 0x1.6cd1e9b68ff6bp-8;
  p = p * t + 0x1.a7520e0601e3ep-4;
  p = p * t + 0x1.5cf785b2ff940p+0;
  return p;
}

// K at 0 and below is infinity and NaN.
PLAIT_INLINE double k_edges(float x, double y) {
  return plait_vm_pick(x < 0.0f, PLAIT_VM_NAN, plait_vm_pick(x == 0.0f, PLAIT_VM_INF, y));
}

PLAIT_INLINE double place(float x) { return (double)x * (double)x * 0.5 - 1.0; }

PLAIT_INLINE double small_k0(float x) {
  double t = place(x);
  return k_edges(x, near_k0(t) - plait_vm_wide_log((double)x) * near_i0(t));
}

PLAIT_INLINE double small_k1(float x) {
  double v = (double)x, t = place(x);
  return k_edges(x, v * (near_k1(t) + plait_vm_wide_log(v) * near_i1(t)) + 1.0 / v);
}

PLAIT_INLINE double large_k0e(float x) {
  double inverse = 1.0 / (double)x;
  return far_k0(4.0 * inverse - 1.0) * sqrt(inverse);
}

PLAIT_INLINE double large_k1e(float x) {
  double inverse = 1.0 / (double)x;
  return far_k1(4.0 * inverse - 1.0) * sqrt(inverse);
}

// From 150 on, K is less than any float.
PLAIT_INLINE double decay(float x) { return plait_vm_wide_exp(-plait_vm_at_most((double)x, 150.0)); }
PLAIT_INLINE double large_k0(float x) { return large_k0e(x) * decay(x); }
PLAIT_INLINE double large_k1(float x) { return large_k1e(x) * decay(x); }

PLAIT_INLINE double growth(float x) { return plait_vm_wide_exp(plait_vm_at_most((double)x, 2.0)); }
PLAIT_INLINE double small_k0e(float x) { return small_k0(x) * growth(x); }
PLAIT_INLINE double small_k1e(float x) { return small_k1(x) * growth(x); }

#define IS_FAR(x) ((x) > 2.0f)
TWO_RANGES(bessel_k0, IS_FAR, small_k0, large_k0)
TWO_RANGES(bessel_k1, IS_FAR, small_k1, large_k1)
TWO_RANGES(bessel_k0e, IS_FAR, small_k0e, large_k0e)
TWO_RANGES(bessel_k1e, IS_FAR, small_k1e, large_k1e)

const plaitk_special_loop plaitk_special_loops_k[4] = {bessel_k0, bessel_k1, bessel_k0e, bessel_k1e};
