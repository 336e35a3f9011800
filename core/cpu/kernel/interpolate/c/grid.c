#include "grid.h"

#include <math.h>

#include "../../../include/plait_transpose.h"

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("no-trapping-math") // else comparisons are not vectorised
#endif

enum { POINTS = 256, TAPS = 16, WIDE = 16, NARROW = 4, POSITIONS = 1024 };

struct job {
  const struct plaitk_grid *g;
  void *packed; // [samples, groups, plane, lanes], or NULL
  int64_t plane, lanes, groups;
};

#define T float
#define FLOOR floorf
#define ROUND rintf
#define ABS fabsf
#define BLOCK 4
#define TRANSPOSE plait_transpose_block4
#define FN(name) name##_f32
#include "grid_impl.h"

#define T double
#define FLOOR floor
#define ROUND rint
#define ABS fabs
#define BLOCK 2
#define TRANSPOSE plait_transpose_block8
#define FN(name) name##_f64
#include "grid_impl.h"

static void pack_chunk(void *arg, int64_t chunk) {
  const struct job *j = arg;
  (j->g->dtype == PLAIT_F64 ? pack_f64 : pack_f32)(j, chunk);
}

static void sample_chunk(void *arg, int64_t chunk) {
  const struct job *j = arg;
  (j->g->dtype == PLAIT_F64 ? sample_f64 : sample_f32)(j, chunk);
}

static struct job job_of(const struct plaitk_grid *g) {
  struct job j = {.g = g, .plane = 1, .lanes = g->channels < 8 ? NARROW : WIDE};
  for (int64_t d = 0; d < g->dims; d++) j.plane *= g->in[d];
  j.groups = plait_ceil_div(g->channels, j.lanes);
  return j;
}

int64_t plaitk_grid_scratch(const struct plaitk_grid *g) {
  struct job j = job_of(g);
  return j.plane > 4 * g->points ? 0 : g->samples * j.groups * j.plane * j.lanes * plait_dtype_size(g->dtype);
}

void plaitk_grid_sample(plait_pool *pool, const struct plaitk_grid *g, void *scratch) {
  struct job j = job_of(g);
  if (plaitk_grid_scratch(g) > 0) {
    j.packed = scratch;
    plait_parallel(pool, g->samples * j.groups * plait_ceil_div(j.plane, POSITIONS), pack_chunk, &j);
  }
  plait_parallel(pool, g->samples * plait_ceil_div(g->points, POINTS), sample_chunk, &j);
}
