// Concatenation, as several copies that run together.
#include "joining.h"

void plaitk_joining_cat(plait_pool *pool, const plait_view *out, int64_t dim, int64_t count, const plait_view *ins,
                        plaitk_copy_plan *plans) {
  int64_t used = 0;
  plait_view part = *out;
  for (int64_t i = 0; i < count; i++) {
    part.shape[dim] = ins[i].shape[dim];
    plaitk_copying_plan(&plans[used], &part, &ins[i]);
    if (plans[used].units > 0) used++;
    part.data += ins[i].shape[dim] * out->stride[dim] * plait_dtype_size(out->dtype);
  }
  if (used > 0) plaitk_copying_run_all(pool, plans, used);
}
