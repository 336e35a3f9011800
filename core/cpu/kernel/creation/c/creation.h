// Tensors made of numbers alone: sequences, and the indices of triangles.
#ifndef PLAITK_CREATION_H
#define PLAITK_CREATION_H

#include "../../../include/plait_pool.h"
#include "../../../include/plait_view.h"

// These fill the 1-d `out`: arange with start + i * step, in int64 for integer dtypes; linspace with n numbers from a
// to b; logspace with base to the power of such numbers.
void plaitk_creation_arange(plait_pool *pool, const plait_view *out, int64_t istart, int64_t istep, double start, double step);
void plaitk_creation_linspace(plait_pool *pool, const plait_view *out, double a, double b);
void plaitk_creation_logspace(plait_pool *pool, const plait_view *out, double a, double b, double base);

// Writes the row and column indices of the lower or upper triangle of a rows x cols matrix to the int64 `out` of shape
// [2, n].
void plaitk_creation_triangle_indices(const plait_view *out, int64_t rows, int64_t cols, int64_t diagonal, int64_t upper);

#endif
