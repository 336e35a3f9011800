// The indices of the elements of a triangle.
#include "creation.h"

static int64_t clamp(int64_t x, int64_t high) { return x < 0 ? 0 : x > high ? high : x; }

void plaitk_creation_triangle_indices(const plait_view *out, int64_t rows, int64_t cols, int64_t diagonal, int64_t upper) {
  int64_t *row = (int64_t *)out->data, *col = row + out->stride[0];
  int64_t step = out->stride[1], n = 0;
  // Skip rows without elements: they may far outnumber the elements.
  int64_t first = upper ? 0 : plait_max64(0, -diagonal), last = upper ? plait_min64(rows, cols - diagonal) : rows;
  for (int64_t r = first; r < last; r++) {
    int64_t from = upper ? clamp(r + diagonal, cols) : 0, to = upper ? cols : clamp(r + diagonal + 1, cols);
    for (int64_t c = from; c < to; c++, n += step) row[n] = r, col[n] = c;
  }
}
