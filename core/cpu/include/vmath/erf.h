// The error function and its relatives.
#ifndef PLAIT_VMATH_ERF_H
#define PLAIT_VMATH_ERF_H

#include "exp.h"
#include "wide.h"

// erf(x), within 2 ulp.
PLAIT_INLINE float plait_vm_erff(float x) {
  float a = plait_vm_at_mostf(plait_vm_absf(x), 3.95f);
  float z = a * a;
  float p = 0x1.4f562ep-14f;
  p = p * z - 0x1.a606c2p-11f;
  p = p * z + 0x1.5449e4p-8f;
  p = p * z - 0x1.b80118p-6f;
  p = p * z + 0x1.ce2d64p-4f;
  p = p * z - 0x1.812740p-2f;
  p = p * z + 0x1.06eba8p-3f;
  float small = a + a * p;
  // log(erfc(a)) is nearly a parabola.
  float q = -0x1.61dbacp-16f;
  q = q * a + 0x1.c78a58p-12f;
  q = q * a - 0x1.1159a0p-8f;
  q = q * a + 0x1.9b8e1ep-6f;
  q = q * a - 0x1.bb83d8p-4f;
  q = q * a - 0x1.44460cp-1f;
  q = q * a - 0x1.2127e4p+0f;
  q = q * a + 0x1.6e56dap-13f;
  float large = 1.0f - plait_vm_near_expf(q);
  return plait_vm_copysignf(plait_vm_pickf(a >= 0.92f, large, small), x); // NaN takes the polynomial
}

// erfc(x), within 0.6 ulp.
PLAIT_INLINE float plait_vm_erfcf(float x) {
  double a = (double)plait_vm_at_mostf(plait_vm_absf(x), 10.2f);
  // erfc(a) exp(a^2) is smooth in t.
  double t = (a - 3.0) / (a + 3.0);
  // Two short sums take less time than a long one.
  double u = t * t, p = 0x1.d50e56a8924bfp-15, q = 0x1.e487a16837218p-16;
  p = p * u - 0x1.37b9c19df839cp-11;
  q = q * u + 0x1.773fd063f6ea8p-11;
  p = p * u + 0x1.17c3dafe4cf8ap-8;
  q = q * u - 0x1.8facd2d30a136p-6;
  p = p * u + 0x1.258b1af08ae66p-4;
  q = q * u - 0x1.336fe72b4a28ep-3;
  p = p * u + 0x1.f6ff1fb263916p-3;
  q = q * u - 0x1.4e102bde0026dp-2;
  p = p * u + 0x1.6e9827d507576p-3;
  p += q * t;
  double y = p * plait_vm_wide_exp_short(-a * a), sign = plait_vm_copysign(1.0, (double)x);
  return (float)(sign * y + (1.0 - sign));
}

// The inverse of erf, to 2^-28 of the result; NaN outside [-1, 1]. It is x times a function of w = -log(1 - x^2).
PLAIT_INLINE double plait_vm_wide_erfinv(double x) {
  double w = -plait_vm_wide_log1p(-plait_vm_at_most(x * x, 0x1.fffffffffffffp-1));
  double u = w - 2.5;
  double p = 0x1.24253403258c9p-33;
  p = p * u + 0x1.e086857e0ca00p-32;
  p = p * u - 0x1.7ac0009d54b24p-27;
  p = p * u + 0x1.1abba18151170p-26;
  p = p * u + 0x1.01892b870d670p-21;
  p = p * u - 0x1.cbd4e4860972cp-19;
  p = p * u - 0x1.4f75fc934f1e3p-18;
  p = p * u + 0x1.c9bb5b289d24bp-13;
  p = p * u - 0x1.486399f731ab7p-10;
  p = p * u - 0x1.11c3e0b55921ap-8;
  p = p * u + 0x1.f91e897302f36p-3;
  p = p * u + 0x1.805c5cff6ea5cp+0;
  double s = sqrt(w) - 3.0;
  double q = 0x1.42cfea77908ecp-17;
  q = q * s - 0x1.ab36b4340dd3ep-16;
  q = q * s - 0x1.dec19dcabca99p-16;
  q = q * s + 0x1.a7f6a0d99a24ap-13;
  q = q * s - 0x1.34c0842575566p-12;
  q = q * s - 0x1.31557f2731a53p-13;
  q = q * s + 0x1.85e248096dd3ap-10;
  q = q * s - 0x1.d2976cba7d554p-9;
  q = q * s + 0x1.748c85d2bf2e7p-8;
  q = q * s - 0x1.f4efd58259288p-8;
  q = q * s + 0x1.35830c10b8eb5p-7;
  q = q * s + 0x1.006dca6bd156ep+0;
  q = q * s + 0x1.6a9efbd5be9b1p+1;
  double y = x * plait_vm_pick(w < 5.0, p, q);
  y = plait_vm_pick(plait_vm_abs(x) == 1.0, plait_vm_copysign(PLAIT_VM_INF, x), y);
  return plait_vm_pick(plait_vm_abs(x) > 1.0, PLAIT_VM_NAN, y);
}

// The inverse of erf, within 1 ulp; NaN outside [-1, 1].
PLAIT_INLINE float plait_vm_erfinvf(float x) { return (float)plait_vm_wide_erfinv((double)x); }

#endif
