// Dropout with a counter-based generator, so that no mask is stored.
#ifndef PLAITK_DROPOUT_H
#define PLAITK_DROPOUT_H

#include <stdint.h>

#include "../../../include/plait_pool.h"

// y[i] = x[i] * scale where word i of the generator is below limit, else 0, for n contiguous elements of a floating
// dtype. With NULL for x, every x[i] is 1.
void plaitk_dropout(plait_pool *pool, int dtype, const void *x, void *y, int64_t n, uint64_t seed, uint64_t offset,
                    uint64_t limit, double scale);

#endif
