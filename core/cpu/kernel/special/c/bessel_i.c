// The modified Bessel functions of the first kind of floats. The loops say, as simd.h does, that exceptions are not observed.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("no-trapping-math")
#endif
#include "loops.h"

// exp(-x) I0(x) for x = 4 + 4 t, -1 <= t <= 1, to 2^-31.
PLAIT_INLINE double near_i0(double t) {
  double p = -0x1.2fc957a946abcp-16;
  p = p * t + 0x1.a98becc743c10p-15;
  p = p * t - 0x1.57cefecf4bd2dp-15;
  p = p * t + 0x1.8e631923096a9p-14;
  p = p * t - 0x1.b808c04d75176p-12;
  p = p * t + 0x1.f2f00f73bf782p-11;
  p = p * t - 0x1.d217b4c54094fp-10;
  p = p * t + 0x1.cf5c47c60fc72p-9;
  p = p * t - 0x1.be77ed08e49c8p-8;
  p = p * t + 0x1.89603d69c5da6p-7;
  p = p * t - 0x1.425a3914b88b3p-6;
  p = p * t + 0x1.ee2dc3d60d855p-6;
  p = p * t - 0x1.6028247824f49p-5;
  p = p * t + 0x1.d1252becdb66fp-5;
  p = p * t - 0x1.1cd6ebb236e97p-4;
  p = p * t + 0x1.44b5a6b97cf70p-4;
  p = p * t - 0x1.5c02968420cd4p-4;
  p = p * t + 0x1.65c23d2763687p-4;
  p = p * t - 0x1.6cb8d087922b2p-4;
  p = p * t + 0x1.8322d1a8fa1bbp-4;
  p = p * t - 0x1.cedda005459a8p-4;
  p = p * t + 0x1.a7f09f8f074acp-3;
  return p;
}

// sqrt(x) exp(-x) I0(x) for x = 16 / (1 + t), -1 <= t <= 1, to 2^-32.
PLAIT_INLINE double far_i0(double t) {
  double p = 0x1.a24fe6e887120p-30;
  p = p * t + 0x1.0f9ccc1f729dfp-25;
  p = p * t + 0x1.c5b3cb56a806ap-24;
  p = p * t + 0x1.49fedb6718700p-22;
  p = p * t + 0x1.8cc09f979e91cp-20;
  p = p * t + 0x1.75ca49b22d449p-17;
  p = p * t + 0x1.1daad435a1713p-13;
  p = p * t + 0x1.b8796bf30abe3p-9;
  p = p * t + 0x1.9bd428ace770bp-2;
  return p;
}

// exp(-x) I1(x) / x for x = 4 + 4 t, -1 <= t <= 1, to 2^-31.
PLAIT_INLINE double near_i1(double t) {
  double p = -0x1.173835fb70366p-19;
  p = p * t + 0x1.9cee2b21d3154p-18;
  p = p * t - 0x1.b74d5846bb68ep-18;
  p = p * t + 0x1.191ce09db412ep-16;
  p = p * t - 0x1.11d260c42c534p-14;
  p = p * t + 0x1.4d551fece7627p-13;
  p = p * t - 0x1.620703053730fp-12;
  p = p * t + 0x1.819bb09c5d6f1p-11;
  p = p * t - 0x1.93f59e8fc3407p-10;
  p = p * t + 0x1.8a9dd4ff7abd8p-9;
  p = p * t - 0x1.6aa8efbd58801p-8;
  p = p * t + 0x1.39fdb61d3cb02p-7;
  p = p * t - 0x1.fe3f4ef28869bp-7;
  p = p * t + 0x1.8413e9d3a948cp-6;
  p = p * t - 0x1.13d5e2e8bb839p-5;
  p = p * t + 0x1.6df9456c23f31p-5;
  p = p * t - 0x1.c4daa6741a6d9p-5;
  p = p * t + 0x1.0530f8e779434p-4;
  p = p * t - 0x1.1881379929633p-4;
  p = p * t + 0x1.16c390d879b19p-4;
  p = p * t - 0x1.f4bb071a9f2c7p-5;
  p = p * t + 0x1.6e14eb8e68463p-5;
  return p;
}

// sqrt(x) exp(-x) I1(x) for x = 16 / (1 + t), -1 <= t <= 1, to 2^-32.
PLAIT_INLINE double far_i1(double t) {
  double p = -0x1.4dcf9acdc341ep-29;
  p = p * t - 0x1.334ca55708265p-25;
  p = p * t - 0x1.fa4479a85c008p-24;
  p = p * t - 0x1.80dc75215edb1p-22;
  p = p * t - 0x1.eae524c476acfp-20;
  p = p * t - 0x1.f87ff80cf1fa7p-17;
  p = p * t - 0x1.cbc5b59f38723p-13;
  p = p * t - 0x1.3f79622a3e42ep-7;
  p = p * t + 0x1.8ebe783ac527dp-2;
  return p;
}

// exp(-|x|) I(x).
PLAIT_INLINE double small_i0e(float x) { return near_i0(0.25 * plait_vm_abs((double)x) - 1.0); }
PLAIT_INLINE double small_i1e(float x) { return (double)x * near_i1(0.25 * plait_vm_abs((double)x) - 1.0); }

PLAIT_INLINE double large_i0e(float x) {
  double inverse = 1.0 / plait_vm_abs((double)x);
  return far_i0(16.0 * inverse - 1.0) * sqrt(inverse);
}

PLAIT_INLINE double large_i1e(float x) {
  double inverse = 1.0 / plait_vm_abs((double)x);
  return plait_vm_copysign(far_i1(16.0 * inverse - 1.0) * sqrt(inverse), (double)x);
}

// I(x), which is infinite from x = 92 on.
PLAIT_INLINE float limited(float x) { return plait_vm_copysignf(plait_vm_at_mostf(plait_vm_absf(x), 100.0f), x); }
PLAIT_INLINE double growth(float x) { return plait_vm_wide_exp(plait_vm_abs((double)x)); }

PLAIT_INLINE double small_i0(float x) { return small_i0e(limited(x)) * growth(limited(x)); }
PLAIT_INLINE double small_i1(float x) { return small_i1e(limited(x)) * growth(limited(x)); }
PLAIT_INLINE double large_i0(float x) { return large_i0e(limited(x)) * growth(limited(x)); }
PLAIT_INLINE double large_i1(float x) { return large_i1e(limited(x)) * growth(limited(x)); }

#define IS_FAR(x) (plait_vm_absf(x) > 8.0f)
TWO_RANGES(bessel_i0, IS_FAR, small_i0, large_i0)
TWO_RANGES(bessel_i1, IS_FAR, small_i1, large_i1)
TWO_RANGES(bessel_i0e, IS_FAR, small_i0e, large_i0e)
TWO_RANGES(bessel_i1e, IS_FAR, small_i1e, large_i1e)

const plaitk_special_loop plaitk_special_loops_i[4] = {bessel_i0, bessel_i1, bessel_i0e, bessel_i1e};
