// repeat_interleave's index: each position, repeated as often as requested.
#include "rearrangement.h"

int64_t plaitk_rearrangement_repeat(const plait_view *out, const plait_view *repeats) {
  const int64_t *count = (const int64_t *)repeats->data;
  int64_t *o = (int64_t *)out->data, total = 0;
  for (int64_t i = 0; i < repeats->shape[0]; i++) {
    if (count[i] < 0 || count[i] > out->shape[0] - total) return -1;
    for (int64_t k = 0; k < count[i]; k++) o[total++] = i;
  }
  return total;
}
