// Cross products. Products are rounded before they are subtracted, so that the cross product of a vector and itself is 0.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("fp-contract=off")
#endif
#include "linalg.h"

enum { CHUNK = 1 << 14 };

struct job {
  const void *x, *z;
  void *y;
  int32_t dtype;
  int64_t outer, inner, unit;
};

#define PLAIT_TEMPLATE "../kernel/linalg/c/cross_impl.h"
#include "../../../include/plait_each_float.h"

static void cross_chunk(void *arg, int64_t chunk) {
  static void (*const runs[])(const struct job *j, int64_t first, int64_t last) = {cross_f16, cross_bf16, cross_f32, cross_f64};
  const struct job *j = arg;
  int64_t first = chunk * j->unit, last = first + j->unit < j->outer ? first + j->unit : j->outer;
  runs[j->dtype - PLAIT_F16](j, first, last);
}

void plaitk_linalg_cross(plait_pool *pool, int32_t dtype, const void *x, const void *z, void *y, int64_t outer, int64_t inner) {
  if (outer == 0 || inner == 0) return;
  struct job j = {x, z, y, dtype, outer, inner, 1 + CHUNK / inner};
  plait_parallel(pool, (outer + j.unit - 1) / j.unit, cross_chunk, &j);
}
