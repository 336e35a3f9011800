// Copies between strided tensors: the plan of a copy, the tiles it moves, and the kernels built on it.
#ifndef PLAITK_COPYING_H
#define PLAITK_COPYING_H

#include "../../../include/plait_pool.h"
#include "../../../include/plait_view.h"

// Converts n contiguous elements.
typedef void (*plaitk_convert)(void *restrict out, const void *restrict in, int64_t n);

// Returns the conversion between two dtypes.
plaitk_convert plaitk_copying_converter(int64_t to, int64_t from);

// Whether conversions do without AVX-512 where the processor has it. For tests, while no kernel runs.
void plaitk_copying_without_avx512(bool without);

// A plane is the two dimensions that a tile spans. Dimension 0 has the smallest stride in the output. Strides are in
// bytes.
typedef struct {
  int64_t n[2], out[2], in[2];
  bool stream; // the output is too large for the caches: use non-temporal stores
} plaitk_plane;

// Copies the elements of a plane, `size` bytes each.
void plaitk_copying_plane(int64_t size, char *restrict out, const char *restrict in, const plaitk_plane *p);

// A plan splits a copy into units. A unit is a tile of the plane at one index of the outer dimensions. Units are
// independent. The split depends on shapes and strides only.
typedef struct {
  char *out;
  const char *in;
  int64_t size, in_size;  // bytes per element
  plaitk_convert convert; // NULL between equal dtypes
  plaitk_plane plane;
  int64_t tile[2];     // the size of a tile
  int64_t across;      // number of tiles along dimension 0 of the plane, which varies fastest
  int64_t ndim, shape[PLAIT_MAX_DIMS], stride[PLAIT_MAX_DIMS][2]; // the outer loops; strides of out and in
  int64_t down;        // the outer loop over tiles along dimension 1 of the plane; -1 if there is one such tile
  int64_t units, unit_bytes;
} plaitk_copy_plan;

// Plans the copy of `in` to `out`, which have the same shape.
void plaitk_copying_plan(plaitk_copy_plan *p, const plait_view *out, const plait_view *in);

// Runs units first, ..., last-1.
void plaitk_copying_run(const plaitk_copy_plan *p, int64_t first, int64_t last);

// Runs several plans, whose outputs must not overlap.
void plaitk_copying_run_all(plait_pool *pool, const plaitk_copy_plan *plans, int64_t count);

void plaitk_copying_copy(plait_pool *pool, const plait_view *out, const plait_view *in);
void plaitk_copying_fill(plait_pool *pool, const plait_view *out, int64_t integer, double real);

#endif
