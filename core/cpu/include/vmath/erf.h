// The error function and its relatives.
#ifndef PLAIT_VMATH_ERF_H
#define PLAIT_VMATH_ERF_H

#include "exp.h"

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
  float large = 1.0f - plait_vm_exp_normalf(q);
  return plait_vm_copysignf(plait_vm_pickf(a < 0.92f, small, large), x);
}

#endif
