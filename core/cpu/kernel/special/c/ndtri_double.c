// The inverse of the normal distribution function of doubles. The loops say, as simd.h does, that exceptions are not observed.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("no-trapping-math")
#endif
#include "loops.h"

#define IS_FAR(p) ((p) < 0x1p-54)
TWO_RANGES_DOUBLE(ndtri, IS_FAR, plait_vm_near_ndtri, plait_vm_far_ndtri)

const plaitk_special_double_loop plaitk_special_double_loop_ndtri = ndtri;
