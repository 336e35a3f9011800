// The values of images and volumes at given places. core/contract/interpolate.go says what they are.
//
// The channels of x are first laid out beside each other, so that a neighbour is a vector of up to WIDE channels. A chunk is POINTS places
// of a sample: the positions and weights of their neighbours are found once, and then summed for all channels. Where there are few places,
// channels stay where they are. Gradients of the elements are summed in such a layout, a group of channels of a sample in a chunk.
#ifndef PLAITK_GRID_H
#define PLAITK_GRID_H

#include "../../../include/plait_kernel.h"
#include "../../../include/plait_pool.h"
#include "../../../include/plait_view.h"
#include "interpolate.h"

enum { GRID_ZEROS, GRID_BORDER, GRID_REFLECTION };

struct plaitk_grid {
  const void *x, *grid, *dy;
  void *y, *dx, *dgrid; // dx and dgrid may be NULL
  int64_t dtype, samples, channels, points, dims;
  int64_t in[3]; // the sizes of x, the last dimension first
  int64_t mode, padding;
  bool align_corners;
};

// The bytes of scratch, aligned to 64, that a call needs. A plane of x has fewer than 2^31 elements.
int64_t plaitk_grid_scratch(const struct plaitk_grid *g);
void plaitk_grid_sample(plait_pool *pool, const struct plaitk_grid *g, void *scratch);
void plaitk_grid_gradients(plait_pool *pool, const struct plaitk_grid *g, void *scratch);

#endif
