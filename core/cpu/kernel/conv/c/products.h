// Convolutions as products of matrices: what products.c, which lays out and multiplies the matrices, shares with copies.c,
// which fills and empties them.
#ifndef PLAITK_CONV_PRODUCTS_H
#define PLAITK_CONV_PRODUCTS_H

#include "lattice.h"

#define PLAITK_CONV_PARTS (12 << 10)  // elements of the parts of a plane, at most

// A matrix [channels, positions] of a block of images of a tensor [images, channels, plane]. Column i of it is position
// i % plane of image i / plane.
typedef struct {
  char *data;
  int64_t row, column, image;  // strides in elements; that of images leads to the next block
  int copied;                  // it is a copy, made for each block, so it has no other block
} plaitk_conv_matrix;

typedef struct {
  const plaitk_conv_shape *s;
  const plaitk_conv_io *io;
  int64_t channels, rows;           // channels of x and of y in a group
  int64_t in_plane, out_plane;
  int64_t taps, used;               // taps of the kernel, and those that read the input
  int64_t depth;                    // rows of the unfolded matrix in a group: channels * used
  int64_t images, columns;          // images of a block, and columns of its matrices
  int64_t block_first, block_size;  // the images of the block under way
  int *tap;                         // [used]
  int *source;                      // [used, out_plane]: what a tap reads at a position; in_plane is padding
  // If shifted, a channel's plane is copied to a part for each residue modulo the strides, or made of such parts. In
  // these, with rows as long as those of y, a tap reads element p + shift[u] at position p, or padding.
  int shifted;
  int64_t *shift;                   // [used]
  int64_t part, before;             // elements of a part, and those of them before the first
  int64_t parts, most_parts;        // those that taps read, or all for the input gradient
  int64_t (*residue)[3];            // [parts]
  // All bits of an element where a tap reads the input, else none: [used, out_plane] elements of the unfolded matrix.
  char *keep;
  int *first, *term;                // element i of dx is the sum of terms first[i] to first[i + 1] - 1 of the unfolded
  int same;                         // the unfolded matrix is that of x
  int batched;                      // each image is a block that is not copied; one call multiplies all
  plaitk_conv_matrix x, y, unfolded;
  char *w;                          // [groups * rows, channels, used]
  char *sums;                       // of the weight gradient over blocks, where it cannot hold them itself; or NULL
  char *products;                   // memory for a matrix product
  int64_t product_bytes;
  const void *bias;
  // A copy.
  const char *from;
  char *to;
  int64_t count, chunk;             // channels or weights, and those of a chunk
} plaitk_conv_job;

// The copies of a job.
typedef enum {
  CONV_UNFOLD,    // x to the unfolded matrix
  CONV_FOLD,      // the unfolded gradient to that of x
  CONV_GATHER,    // y to its matrix
  CONV_SCATTER,   // the matrix of y to y
  CONV_TAKE,      // the weight's taps that are used
  CONV_PUT,       // these to the gradient of the weight, which is zero for the other taps
  CONV_ROUND,     // sums to the gradient of the weight
} plaitk_conv_copy_kind;

// plaitk_conv_copy runs a copy, which for x and y is that of the block under way.
void plaitk_conv_copy(plait_pool *pool, plaitk_conv_job *j, plaitk_conv_copy_kind kind, const void *from, void *to);

#endif
