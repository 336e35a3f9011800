// The modified Bessel functions of the first kind of doubles. The loops say, as simd.h does, that exceptions are not observed.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("no-trapping-math")
#endif
#include "loops.h"

// exp(-x) I0(x) for x = 4 + 4 t, -1 <= t <= 1, to 2^-54.
PLAIT_INLINE double near_i0(double t) {
  double p = 0x1.2c4a9f91a368fp-29;
  p = p * t - 0x1.005153e1cdaa9p-29;
  p = p * t - 0x1.92f137fa60268p-27;
  p = p * t - 0x1.817985cb6d406p-29;
  p = p * t + 0x1.58850806e93ccp-24;
  p = p * t - 0x1.16aa4ab93d89cp-23;
  p = p * t + 0x1.18340ade1c017p-22;
  p = p * t - 0x1.1bfa8be62ee9dp-20;
  p = p * t + 0x1.c41b5444f0490p-19;
  p = p * t - 0x1.37b7535764ba9p-17;
  p = p * t + 0x1.a4b56856f4db9p-16;
  p = p * t - 0x1.129fd940b330cp-14;
  p = p * t + 0x1.54c27d6f93c33p-13;
  p = p * t - 0x1.9185ec15cb54fp-12;
  p = p * t + 0x1.c0ef9d7c98e8ap-11;
  p = p * t - 0x1.daf91350db522p-10;
  p = p * t + 0x1.da1b0b7ea5bfbp-9;
  p = p * t - 0x1.bd259ade2f8d7p-8;
  p = p * t + 0x1.87e8616cc580cp-7;
  p = p * t - 0x1.427b08efe7f4ep-6;
  p = p * t + 0x1.ee6f56cdf2f38p-6;
  p = p * t - 0x1.602411ee19452p-5;
  p = p * t + 0x1.d11e10ef57d44p-5;
  p = p * t - 0x1.1cd73a8dec466p-4;
  p = p * t + 0x1.44b6196aadc3fp-4;
  p = p * t - 0x1.5c028fe64debcp-4;
  p = p * t + 0x1.65c235bfe8e44p-4;
  p = p * t - 0x1.6cb8d0c91562ep-4;
  p = p * t + 0x1.8322d1d8a3c18p-4;
  p = p * t - 0x1.cedda00486210p-4;
  p = p * t + 0x1.a7f09f8eedf5ap-3;
  return p;
}

// sqrt(x) exp(-x) I0(x) for x = 16 / (1 + t), -1 <= t <= 1, to 2^-54.
PLAIT_INLINE double far_i0(double t) {
  double p = -0x1.2f2a96bd36cffp-36;
  p = p * t + 0x1.a86ff563afdb7p-34;
  p = p * t + 0x1.29e65776bf2a1p-33;
  p = p * t - 0x1.75544a00f84c4p-31;
  p = p * t - 0x1.228cead20df8ep-31;
  p = p * t + 0x1.3316162674d85p-29;
  p = p * t + 0x1.910fde40c50b3p-30;
  p = p * t - 0x1.3de239c1f27dep-28;
  p = p * t - 0x1.da664febbb38dp-29;
  p = p * t + 0x1.c5afa66bb30a8p-28;
  p = p * t + 0x1.026ccc733deedp-27;
  p = p * t - 0x1.5bc1489ec4729p-28;
  p = p * t - 0x1.cc5138fe923c1p-27;
  p = p * t - 0x1.d62781a417ebbp-28;
  p = p * t + 0x1.037a409466eb4p-27;
  p = p * t + 0x1.727a226721178p-26;
  p = p * t + 0x1.51cf6430d059ep-25;
  p = p * t + 0x1.7d0d4695175d3p-24;
  p = p * t + 0x1.3f49a5573b37ep-22;
  p = p * t + 0x1.8e513bf47a5e9p-20;
  p = p * t + 0x1.75e5ee7255674p-17;
  p = p * t + 0x1.1daa72b5d2eeep-13;
  p = p * t + 0x1.b87969bb93b64p-9;
  p = p * t + 0x1.9bd428ad249a5p-2;
  return p;
}

// exp(-x) I1(x) / x for x = 4 + 4 t, -1 <= t <= 1, to 2^-54.
PLAIT_INLINE double near_i1(double t) {
  double p = 0x1.15323e92e5ed0p-33;
  p = p * t - 0x1.6409cb9aec331p-30;
  p = p * t + 0x1.7275ede7308d0p-32;
  p = p * t + 0x1.020e7162d71a9p-27;
  p = p * t - 0x1.ae7e3dd8ed0ffp-32;
  p = p * t - 0x1.38f173e21bfa5p-25;
  p = p * t + 0x1.b09f83a606950p-25;
  p = p * t - 0x1.406acd71ffb1cp-24;
  p = p * t + 0x1.7900171c2a704p-22;
  p = p * t - 0x1.3fce8275bfb84p-20;
  p = p * t + 0x1.be3b20bb4dfd9p-19;
  p = p * t - 0x1.30f9c1f0d8363p-17;
  p = p * t + 0x1.9625d73c31680p-16;
  p = p * t - 0x1.01be1e979769fp-14;
  p = p * t + 0x1.374ad68bf6ee1p-13;
  p = p * t - 0x1.65bcd6bbc3603p-12;
  p = p * t + 0x1.8655fbe4bff17p-11;
  p = p * t - 0x1.9368538255d92p-10;
  p = p * t + 0x1.89f8b40d332c8p-9;
  p = p * t - 0x1.6ab6a171a3796p-8;
  p = p * t + 0x1.3a0c1962b75b4p-7;
  p = p * t - 0x1.fe3d9c21aa9f6p-7;
  p = p * t + 0x1.84125b166b9bdp-6;
  p = p * t - 0x1.13d5f358110fdp-5;
  p = p * t + 0x1.6df95e8b8dbb5p-5;
  p = p * t - 0x1.c4daa51347814p-5;
  p = p * t + 0x1.0530f818011dcp-4;
  p = p * t - 0x1.1881379ffb4fap-4;
  p = p * t + 0x1.16c390ddb0897p-4;
  p = p * t - 0x1.f4bb071a7752dp-5;
  p = p * t + 0x1.6e14eb8e5d319p-5;
  return p;
}

// sqrt(x) exp(-x) I1(x) for x = 16 / (1 + t), -1 <= t <= 1, to 2^-54.
PLAIT_INLINE double far_i1(double t) {
  double p = 0x1.1f2a1bd2cdb73p-36;
  p = p * t - 0x1.cdefc6dceef6ap-34;
  p = p * t - 0x1.1903ac9a54feap-33;
  p = p * t + 0x1.936f7864e5025p-31;
  p = p * t + 0x1.129d2579d5495p-31;
  p = p * t - 0x1.49c7bd4b20c99p-29;
  p = p * t - 0x1.800b5a7438de9p-30;
  p = p * t + 0x1.544cf2336fe14p-28;
  p = p * t + 0x1.d1f474eb5b107p-29;
  p = p * t - 0x1.e84ddc3cc746fp-28;
  p = p * t - 0x1.05e5ca045637fp-27;
  p = p * t + 0x1.850ccf85bd758p-28;
  p = p * t + 0x1.e1f5a9696c15cp-27;
  p = p * t + 0x1.d45b08a3d8e0dp-28;
  p = p * t - 0x1.21844de8abfebp-27;
  p = p * t - 0x1.91c8651310a1cp-26;
  p = p * t - 0x1.727a99e0b4b18p-25;
  p = p * t - 0x1.ad8c1123494ddp-24;
  p = p * t - 0x1.76137e18697b1p-22;
  p = p * t - 0x1.ec8e113b42b62p-20;
  p = p * t - 0x1.f89c23068a388p-17;
  p = p * t - 0x1.cbc54df1e6236p-13;
  p = p * t - 0x1.3f796198ee624p-7;
  p = p * t + 0x1.8ebe783a84030p-2;
  return p;
}

// exp(-|x|) I(x).
PLAIT_INLINE double small_i0e(double x) { return near_i0(0.25 * plait_vm_abs(x) - 1.0); }
PLAIT_INLINE double small_i1e(double x) { return x * near_i1(0.25 * plait_vm_abs(x) - 1.0); }

PLAIT_INLINE double large_i0e(double x) {
  double a = plait_vm_abs(x);
  return far_i0(16.0 / a - 1.0) / sqrt(a);
}

PLAIT_INLINE double large_i1e(double x) {
  double a = plait_vm_abs(x);
  return plait_vm_copysign(far_i1(16.0 / a - 1.0) / sqrt(a), x);
}

// y exp(|x|), which may be finite where the exponential is not. It is infinite from 720 on.
PLAIT_INLINE double growth(double y, double x) {
  double a = plait_vm_abs(x), t;
  double e = plait_vm_exp_fraction((plait_vm_sum){plait_vm_at_most(a, 720.0), 0.0}, PLAIT_VM_EXP_ROUNDER, &t);
  return plait_vm_exp_scale(plait_vm_pick(a < 720.0, y, x) * e, t);
}

PLAIT_INLINE double small_i0(double x) { return growth(small_i0e(x), x); }
PLAIT_INLINE double small_i1(double x) { return growth(small_i1e(x), x); }
PLAIT_INLINE double large_i0(double x) { return plait_vm_abs(growth(large_i0e(x), x)); }
PLAIT_INLINE double large_i1(double x) { return growth(large_i1e(x), x); }

#define IS_FAR(x) (plait_vm_abs(x) > 8.0)
TWO_RANGES_DOUBLE(bessel_i0, IS_FAR, small_i0, large_i0)
TWO_RANGES_DOUBLE(bessel_i1, IS_FAR, small_i1, large_i1)
TWO_RANGES_DOUBLE(bessel_i0e, IS_FAR, small_i0e, large_i0e)
TWO_RANGES_DOUBLE(bessel_i1e, IS_FAR, small_i1e, large_i1e)

const plaitk_special_double_loop plaitk_special_double_loops_i[4] = {bessel_i0, bessel_i1, bessel_i0e, bessel_i1e};
