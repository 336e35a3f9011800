// Kernels that keep or repeat elements by position.
#ifndef PLAITK_REARRANGEMENT_H
#define PLAITK_REARRANGEMENT_H

#include "../../../include/plait_pool.h"
#include "../../../include/plait_view.h"

// Keeps the elements on and below (if upper: on and above) the diagonal of each matrix and writes zeros elsewhere.
// `out` may be `in`.
void plaitk_rearrangement_triangle(plait_pool *pool, const plait_view *out, const plait_view *in, int64_t diagonal, int64_t upper);

// Writes each i repeats[i] times to out. Both are contiguous and int64. Returns the number of elements written, or -1
// if out is too small or a number of repeats is negative.
int64_t plaitk_rearrangement_repeat(const plait_view *out, const plait_view *repeats);

#endif
