// The neighbours of numbers, by steps of their bits. The loops say, as simd.h does, that exceptions are not observed.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("no-trapping-math")
#endif
#include "special.h"

#include "../../../include/plait_kernel.h"

// A number of either sign is smaller than the one whose bits are larger by 1, in size: so a step away from 0 adds 1, and one
// towards 0 subtracts it. From 0 it goes to the smallest number with y's sign.
#define NEXT_AFTER(NAME, T, BITS, SIGNED, SIGN)                                                       \
  PLAIT_CLONES void NAME(T *restrict out, const T *restrict x, const T *restrict y, int64_t n) {      \
    _Pragma("omp simd") for (int64_t i = 0; i < n; i++) {                                             \
      T from = x[i], to = y[i], r;                                                                    \
      BITS u, v;                                                                                      \
      memcpy(&u, &from, sizeof u);                                                                    \
      memcpy(&v, &to, sizeof v);                                                                      \
      BITS away = (from < to) == ((SIGNED)u >= 0), next = u + 2 * away - 1, least = (v & SIGN) | 1;   \
      next = from == 0 ? least : next;                                                                \
      next = from == to ? v : next;                                                                   \
      memcpy(&r, &next, sizeof r);                                                                    \
      out[i] = (from != from) | (to != to) ? from + to : r;                                           \
    }                                                                                                 \
  }

NEXT_AFTER(plaitk_special_next_after_f32, float, uint32_t, int32_t, 0x80000000u)
NEXT_AFTER(plaitk_special_next_after_f64, double, uint64_t, int64_t, 0x8000000000000000u)
