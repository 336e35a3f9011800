// Concatenation of tensors.
#ifndef PLAITK_JOINING_H
#define PLAITK_JOINING_H

#include "../../copying/c/copying.h"

// Concatenates the ins, of out's dtype, along a dimension of out. plans is scratch, one for each input.
void plaitk_joining_cat(plait_pool *pool, const plait_view *out, int64_t dim, int64_t count, const plait_view *ins,
                        plaitk_copy_plan *plans);

#endif
