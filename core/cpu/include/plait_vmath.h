// Elementary and special functions for vectorised loops.
//
// plait_vm_<name>f (float) has no branch and calls no library, but for fmaf where there is no such instruction, so a
// `#pragma omp simd` loop over it in a PLAIT_CLONES function vectorises. Its comment has its largest error in units in the
// last place (ulp), measured over all floats with and without fused multiply-add. plait_vm_<name> (double) has no branch
// either, nor has plait_vm_near_<name> for sin, cos and tan; but remainders, lgamma and digamma have. NaN, infinities,
// signed zeros and subnormal numbers follow C99.
#ifndef PLAIT_VMATH_H
#define PLAIT_VMATH_H

#include "vmath/double.h"
#include "vmath/erf.h"
#include "vmath/exp.h"
#include "vmath/gamma.h"
#include "vmath/hyper.h"
#include "vmath/log.h"
#include "vmath/normal.h"
#include "vmath/pow.h"
#include "vmath/round.h"
#include "vmath/trig.h"

#endif
