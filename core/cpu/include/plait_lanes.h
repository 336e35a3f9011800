// Reductions over rows keep PLAIT_LANES partial results, whatever the vector width. That is enough to hide the latency
// of additions, and gives the same bits on every machine.
#ifndef PLAIT_LANES_H
#define PLAIT_LANES_H

#define PLAIT_LANES 64

// Folds the lanes of s pairwise into the first by s[l] = f(s[l], s[l + h]). Each step is a loop of constant length, so
// that the lanes stay in registers.
#define PLAIT_FOLD_LANES(s, f) \
  PLAIT_FOLD_HALF(s, f, 32) PLAIT_FOLD_HALF(s, f, 16) PLAIT_FOLD_HALF(s, f, 8) PLAIT_FOLD_HALF(s, f, 4) s[0] = \
      f(f(s[0], s[2]), f(s[1], s[3]));
#define PLAIT_FOLD_HALF(s, f, h) \
  _Pragma("omp simd") for (int l_ = 0; l_ < (h); l_++) s[l_] = f(s[l_], s[l_ + (h)]);
#define PLAIT_PLUS(a, b) ((a) + (b))

#endif
