// Reductions over rows keep this many partial results, whatever the width of the machine's vectors: enough that additions
// do not wait for one another, and the same bits everywhere.
#ifndef PLAIT_LANES_H
#define PLAIT_LANES_H

#define PLAIT_LANES 64

// Folds the lanes of s pairwise into the first by s[l] = f(s[l], s[l + h]).
#define PLAIT_FOLD_LANES(s, f)                                    \
  for (int h_ = PLAIT_LANES / 2; h_ > 0; h_ /= 2) {               \
    for (int l_ = 0; l_ < h_; l_++) s[l_] = f(s[l_], s[l_ + h_]); \
  }
#define PLAIT_PLUS(a, b) ((a) + (b))

#endif
