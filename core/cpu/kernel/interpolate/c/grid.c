#include "grid.h"

#include <math.h>
#include <string.h>

#include "../../../include/plait_transpose.h"

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("no-trapping-math") // else comparisons are not vectorised
#endif

enum { POINTS = 256, DIMS = 3, LINE = 4, TAPS = 16, WIDE = 16, NARROW = 4, POSITIONS = 1024 }; // LINE: neighbours along a dimension

struct job {
  const struct plaitk_grid *g;
  void *packed; // x, or NULL: [samples, groups, plane, lanes]
  void *sums;   // dx, or NULL: the same
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

static void place_chunk(void *arg, int64_t chunk) {
  const struct job *j = arg;
  (j->g->dtype == PLAIT_F64 ? place_gradients_f64 : place_gradients_f32)(j, chunk);
}

static void element_chunk(void *arg, int64_t chunk) {
  const struct job *j = arg;
  (j->g->dtype == PLAIT_F64 ? element_gradients_f64 : element_gradients_f32)(j, chunk);
}

static struct job job_of(const struct plaitk_grid *g) {
  struct job j = {.g = g, .plane = 1, .lanes = g->channels < 8 ? NARROW : WIDE};
  for (int64_t d = 0; d < g->dims; d++) j.plane *= g->in[d];
  j.groups = plait_ceil_div(g->channels, j.lanes);
  return j;
}

// The bytes of packed elements; 0 if they stay where they are.
static int64_t packed_bytes(const struct job *j) {
  int64_t bytes = j->g->samples * j->groups * j->plane * j->lanes * plait_dtype_size((int32_t)j->g->dtype);
  return j->plane > 4 * j->g->points ? 0 : (bytes + 63) / 64 * 64;
}

int64_t plaitk_grid_scratch(const struct plaitk_grid *g) {
  struct job j = job_of(g);
  return packed_bytes(&j) * ((g->y || g->dgrid ? 1 : 0) + (g->dx ? 1 : 0));
}

static void pack(plait_pool *pool, struct job *j, void *scratch) {
  if (packed_bytes(j) == 0) return;
  j->packed = scratch;
  plait_parallel(pool, j->g->samples * j->groups * plait_ceil_div(j->plane, POSITIONS), pack_chunk, j);
}

void plaitk_grid_sample(plait_pool *pool, const struct plaitk_grid *g, void *scratch) {
  struct job j = job_of(g);
  pack(pool, &j, scratch);
  plait_parallel(pool, g->samples * plait_ceil_div(g->points, POINTS), sample_chunk, &j);
}

void plaitk_grid_gradients(plait_pool *pool, const struct plaitk_grid *g, void *scratch) {
  struct job j = job_of(g);
  if (g->dx) {
    if (packed_bytes(&j) > 0) j.sums = scratch;
    scratch = (char *)scratch + packed_bytes(&j);
    plait_parallel(pool, g->samples * j.groups, element_chunk, &j);
  }
  if (g->dgrid) {
    pack(pool, &j, scratch);
    plait_parallel(pool, g->samples * plait_ceil_div(g->points, POINTS), place_chunk, &j);
  }
}
