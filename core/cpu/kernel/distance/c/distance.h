// Norms of the differences of all pairs of rows. core/contract/distance.go says what they are.
//
// A chunk is a block of rows of x and LANES rows of z, which are transposed, so that a vector has a feature of LANES rows and sums need no
// reduction. Features are summed BLOCK at a time, which keeps rounding errors small.
//
// In the gradient it is the rows that have it which are transposed, and the weights of their pairs with BLOCK rows of z at a time.
#ifndef PLAITK_DISTANCE_H
#define PLAITK_DISTANCE_H

#include "../../../include/plait_kernel.h"
#include "../../../include/plait_pool.h"
#include "../../../include/plait_view.h"

struct plaitk_pairs {
  const void *x, *z;          // [batch, n, m] and [batch, k, m]
  void *y;                    // [batch, n, k], or with triangle [batch, n * (n - 1) / 2]
  int64_t batch, n, k, m;
  int32_t dtype;
  bool triangle; // the pairs of a row of x and a later one of z
  double p;
};

void plaitk_distance_pairs(plait_pool *pool, const struct plaitk_pairs *pairs);

// One number for each pair.
struct plaitk_given {
  const void *data;
  int64_t strides[3];
};

struct plaitk_pairs_grad {
  struct plaitk_given dy, y;  // [batch, n, k], or with triangle [batch, n * (n - 1) / 2]
  const void *x, *z;          // [batch, n, m] and [batch, k, m]
  void *dx;                   // [batch, n, m]
  int64_t batch, n, k, m;
  int32_t dtype;
  bool triangle;
  double p; // above 0
};

void plaitk_distance_pairs_grad(plait_pool *pool, const struct plaitk_pairs_grad *pairs);

#endif
