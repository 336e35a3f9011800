// Elements kept, moved and repeated by their positions.
#ifndef PLAITK_REARRANGEMENT_H
#define PLAITK_REARRANGEMENT_H

#include "../../../include/plait_pool.h"
#include "../../../include/plait_view.h"

// Keeps what lies on and below (or, if upper, above) the diagonal of each matrix and writes zeros elsewhere. `out` may be
// `in` itself.
void plaitk_rearrangement_triangle(plait_pool *pool, const plait_view *out, const plait_view *in, int64_t diagonal, int64_t upper);

// Writes each i to the contiguous int64 `out` as often as the contiguous int64 repeats[i] says. Returns how many that are,
// or -1 if out has no room for them or one is negative.
int64_t plaitk_rearrangement_repeat(const plait_view *out, const plait_view *repeats);

#endif
