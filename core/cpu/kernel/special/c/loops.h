// Loops of functions that have two ranges.
#ifndef PLAITK_SPECIAL_LOOPS_H
#define PLAITK_SPECIAL_LOOPS_H

#include "special.h"

#include "../../../include/plait_vmath.h"

#define TESTED 256  // elements of which one alone takes all to both ranges

// Defines a loop over floats or doubles: FAR(x) where IS_FAR(x), and NEAR(x) elsewhere. FAR takes any number, but what it returns
// for others is not used.
#define TWO_RANGES_OF(TYPE, MASK, NAME, IS_FAR, NEAR, FAR)                                                          \
  PLAIT_CLONES static void NAME(TYPE *restrict out, const TYPE *restrict x, int64_t n) {                           \
    for (int64_t first = 0; first < n; first += TESTED) {                                                          \
      int64_t last = n - first < TESTED ? n : first + TESTED;                                                      \
      MASK far = 0;                                                                                                \
      _Pragma("omp simd reduction(| : far)") for (int64_t i = first; i < last; i++) far |= (MASK)(IS_FAR(x[i]));     \
      if (far == 0) {                                                                                              \
        _Pragma("omp simd") for (int64_t i = first; i < last; i++) out[i] = (TYPE)NEAR(x[i]);                      \
      } else {                                                                                                     \
        _Pragma("omp simd") for (int64_t i = first; i < last; i++) {                                               \
          out[i] = (TYPE)plait_vm_pick(IS_FAR(x[i]), FAR(x[i]), NEAR(x[i]));                                       \
        }                                                                                                          \
      }                                                                                                            \
    }                                                                                                              \
  }
#define TWO_RANGES(NAME, IS_FAR, NEAR, FAR) TWO_RANGES_OF(float, uint32_t, NAME, IS_FAR, NEAR, FAR)
#define TWO_RANGES_DOUBLE(NAME, IS_FAR, NEAR, FAR) TWO_RANGES_OF(double, uint64_t, NAME, IS_FAR, NEAR, FAR)

#endif
