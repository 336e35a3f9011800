#include "distance.h"

#include <math.h>

enum { ROWS = 128, TILE = 4, BLOCK = 128 };

struct job {
  const struct plaitk_pairs *p;
  int64_t blocks, panels; // of rows of x and of rows of z
};

#define PLAIT_TEMPLATE "../kernel/distance/c/pairs_impl.h"
#include "../../../include/plait_each_float.h"

static void pairs_chunk(void *arg, int64_t chunk) {
  static void (*const runs[])(const struct job *j, int64_t chunk) = {pairs_f16, pairs_bf16, pairs_f32, pairs_f64};
  const struct job *j = arg;
  runs[j->p->dtype - PLAIT_F16](j, chunk);
}

void plaitk_distance_pairs(plait_pool *pool, const struct plaitk_pairs *p) {
  int64_t lanes = p->dtype == PLAIT_F64 ? lanes_f64 : lanes_f32;
  struct job j = {p, plait_ceil_div(p->n, ROWS), plait_ceil_div(p->k, lanes)};
  plait_parallel(pool, p->batch * j.panels * j.blocks, pairs_chunk, &j);
}
