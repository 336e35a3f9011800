// Conversions between tensors of any dtype and the float32 or float64 that the micro-kernels compute in.
#ifndef PLAITK_CONV_IO_H
#define PLAITK_CONV_IO_H

#include <stdint.h>

// A box is a strided, three-dimensional part of one image plane. It may extend past the plane's borders.
typedef struct {
  int64_t size[3];             // the plane's size
  int64_t start[3], step[3];   // position of the box's origin in the plane, and distance of its elements
  int64_t n[3];
  int64_t pitch[2];            // distances of slices and rows in the destination
  int64_t width;               // columns to write; those from n[2] on are zeros
} plaitk_conv_box;

// The memory layout of the elements of W[m, c, t], for the taps of one lattice.
typedef struct {
  int64_t m_stride, c_stride, channels;
  int64_t kernel[3], nt[3], tap0[3], tap_step[3];
} plaitk_conv_weights;

// An io has the conversions for one dtype.
typedef struct {
  int size;          // bytes of an element in the tensor
  int compute_size;  // bytes of an element in the computation
  // fill copies a box of the plane at src, with zeros outside the plane.
  void (*fill)(void *dst, const void *src, const plaitk_conv_box *box);
  // spread copies rows x cols elements: dst[y * pitch + x] = src[y * row + x * step].
  void (*spread)(void *dst, int64_t pitch, const void *src, int64_t row, int64_t step, int64_t rows, int64_t cols);
  // pack writes rows m, m+1, ... of W for all (c, t). The rows of one k are adjacent; rows past count are zeros.
  void (*pack)(void *dst, const void *src, const plaitk_conv_weights *w, int64_t m, int64_t rows, int64_t count);
  // store writes bias plus a block of rows x cols sums. Strides are pitch in src, and row and step in dst.
  void (*store)(void *dst, int64_t row, int64_t step, const void *src, int64_t pitch, int64_t rows, int64_t cols,
                const void *bias);
  // fold writes bias plus the sum of src[term[k]] for k from first[i] to first[i + 1] - 1, for every i < n. bias may be
  // NULL.
  void (*fold)(void *dst, const void *src, const int *first, const int *term, int64_t n, const void *bias);
  // sum writes the sum of count arrays of n elements, `stride` apart, added in order.
  void (*sum)(void *dst, const void *src, int64_t stride, int64_t count, int64_t n);
} plaitk_conv_io;

const plaitk_conv_io *plaitk_conv_io_for(int64_t dtype);

#endif
