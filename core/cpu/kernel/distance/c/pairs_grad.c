#include "distance.h"

#include <math.h>

enum { TILE = 4, BLOCK = 128, FEATURES = 64 };

struct job {
  const struct plaitk_pairs_grad *p;
  int64_t panels, blocks; // of rows of x and of features
};

#define PLAIT_TEMPLATE "../kernel/distance/c/pairs_grad_impl.h"
#include "../../../include/plait_each_float.h"

static void grad_chunk(void *arg, int64_t chunk) {
  static void (*const runs[])(const struct job *j, int64_t chunk) = {grad_f16, grad_bf16, grad_f32, grad_f64};
  const struct job *j = arg;
  runs[j->p->dtype - PLAIT_F16](j, chunk);
}

void plaitk_distance_pairs_grad(plait_pool *pool, const struct plaitk_pairs_grad *p) {
  int64_t lanes = p->dtype == PLAIT_F64 ? grad_lanes_f64 : grad_lanes_f32;
  struct job j = {p, plait_ceil_div(p->n, lanes), plait_ceil_div(p->m, FEATURES)};
  plait_parallel(pool, p->batch * j.panels * j.blocks, grad_chunk, &j);
}
