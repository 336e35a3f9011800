// Fast Fourier transforms along one dimension.
//
// A *line* runs along the transformed dimension. A vector holds one element of as many lines as it has lanes, so every
// step of a transform is plain vector arithmetic. Real and imaginary parts are in vectors of their own: a *row* is two
// vectors, and a transform of n points works on n rows of scratch memory.
//
// There are two ways to fill the lanes:
//
//   lines    The lanes are lines of the tensor. A block of lines is loaded, transformed and stored at once.
//   split    For few or long lines. A line of n = n1 * n2 points is a matrix of n1 rows and n2 columns: its columns are
//            transformed, multiplied by powers of the n-th root of unity, and then its rows are. The lanes are columns
//            in the first pass and rows in the second. (Bailey, "FFTs in external or hierarchical memory", 1990)
//
// Rows are loaded in the order in which radix passes want them ("decimation in time"), so passes work in place and end
// in natural order. (Cooley and Tukey, 1965)
//
// A real line of even length n is n/2 complex points, the even elements and i times the odd ones; a pass after the
// transform, or before the inverse, separates them. One of odd length is complex with imaginary parts 0.
//
// A line whose length has a large prime factor is a convolution: 2jk = j^2 + k^2 - (k-j)^2. It is a product of transforms of
// a smooth length, which are split. (Bluestein, "A linear filtering approach to the computation of discrete Fourier
// transform", 1970)
//
// The inverse transform is the forward one with real and imaginary parts exchanged in its input and output.
#ifndef PLAITK_FFT_H
#define PLAITK_FFT_H

#include "../../../include/plait_kernel.h"
#include "../../../include/plait_pool.h"

enum plaitk_fft_kind { FFT_COMPLEX, FFT_REAL_TO_HALF, FFT_HALF_TO_REAL, FFT_REAL_TO_WHOLE };

enum {
  FFT_MAX_PASSES = 64,
  // The largest odd radix: larger ones are slower than a convolution. The same for split lines that do not fill the lanes, and
  // for few lines that cannot be split.
  FFT_MAX_RADIX = 251,
  FFT_MAX_RADIX_SPLIT = 100,
  FFT_MAX_RADIX_FEW = 31,
  // Bytes of rows that the nearest cache holds beside twiddles.
  FFT_NEAR = 32768,
  // The most rows whose first and last pass read and write elements: those that the nearest cache holds.
  FFT_MAX_ENDS = 256,
  // The most points of a split line whose powers are all in a table.
  FFT_MAX_TABLE = 4096,
  // Lines in a group: a multiple of every vector's lanes, so that choices and results do not depend on these.
  FFT_GROUP = 16,
};

// The distance of imaginary parts from real ones, of numbers that have none.
#define FFT_REAL INT64_MIN

// The most lanes of both passes of a split line, for each point, that are nearly full: 2 are.
#define FFT_FULL 2.25

// fft_generic reports whether a radix has no function of its own.
static inline bool fft_generic(int32_t radix) { return radix > 5 && radix % 2 == 1; }

// How to transform rows of one length.
struct fft_plan {
  int64_t n;
  int32_t passes;
  int32_t radix[FFT_MAX_PASSES];
  // Whether the first pass can read elements and the last one write the result: their radices are 4, 8 or 16, and the rows
  // are few.
  bool ends;
  const int32_t *order;    // the row in which element i is loaded
  const int32_t *element;  // the element that is loaded in a row
  // By pass: for a radix without a function of its own, the powers of the root of that order. Then, but in the first pass, for k < m
  // the powers w^k, w^2k ... of the root of order m * radix, where m is the product of the radices before.
  const void *twiddles;
};

// What the transforms of one length and dtype need. It is made once and then only read.
struct plaitk_fft_plan {
  int64_t n;              // elements of a line
  int64_t points;         // of the complex transform: n, or n/2 for real lines of even length
  int64_t n1, n2;         // points = n1 * n2, or n1 = 0: lines are not split
  int32_t dtype, real;
  struct fft_plan whole;  // of all points, if lines are neither split nor convolutions
  struct fft_plan first, second;
  // Of a convolution: how to transform its length m, or NULL and 0; the powers w^(j^2) of the root of order 2 * points; the
  // transform of the filter.
  struct plaitk_fft_plan *convolution;
  int64_t m;
  const void *chirp;      // [points]
  const void *filter;     // [m], divided by m
  // The powers w^(k1 * k2) of the root of order points, FFT_GROUP real parts and then as many imaginary ones of k2 in turn.
  // Those of long lines are products: of the power of k2's place in its group and, in of_group, that of the group.
  const void *in_group;   // [groups of n2, or 1][n1][2][FFT_GROUP]
  const void *of_group;   // [groups of n2][n1], or NULL
  const void *halves;     // for real lines of even length: w^k for k <= points / 2, of the root of order n
  int64_t bytes;          // of all tables
  void *memory;
};

// A transform in normal form. Strides are in real elements.
struct plaitk_fft {
  const struct plaitk_fft_plan *plan;
  const char *in;
  char *out;
  int32_t kind, inverse;  // of FFT_REAL_TO_WHOLE, kind is that of its first half
  int32_t whole;          // the elements behind that half are written, too: the conjugates of those opposite
  double scale;
  int64_t in_step, out_step;  // along the line
  int32_t nk;
  int64_t ksize[PLAIT_MAX_DIMS], kin[PLAIT_MAX_DIMS], kout[PLAIT_MAX_DIMS];
  int64_t lines;
  void *scratch;
};

// Whether lines are split: never; if their points are a power of two; where the length allows it.
enum fft_split { FFT_WHOLE, FFT_SPLIT_BINARY, FFT_SPLIT };

// plaitk_fft_new makes a plan. It returns NULL for lack of memory.
struct plaitk_fft_plan *plaitk_fft_new(int64_t n, int64_t dtype, int64_t real, int64_t split);
void plaitk_fft_free(struct plaitk_fft_plan *p);

// plaitk_fft_scratch returns the bytes of scratch memory that plaitk_fft_run needs.
int64_t plaitk_fft_scratch(plait_pool *pool, const struct plaitk_fft *f);
void plaitk_fft_run(plait_pool *pool, const struct plaitk_fft *f);

// The pieces that depend on element type and instruction set.
struct fft_kernels {
  int lanes;
  // lines transforms the lines from `first` to first + lanes, or to the last. scratch has room for two transforms.
  void (*lines)(const struct plaitk_fft *f, int64_t first, void *scratch);
  // columns transforms the columns from `first` on of the matrix that is at `in`, into `middle`.
  void (*columns)(const struct plaitk_fft *f, const void *in, int64_t step, int64_t imag, int64_t first, void *middle,
                  void *scratch);
  // rows transforms the rows from `first` on of the matrix in `middle`, to `out`.
  void (*rows)(const struct plaitk_fft *f, const void *middle, int64_t first, void *out, int64_t step, int64_t imag,
               double scale, void *scratch);
  // modulate multiplies elements from `first` to `last` by the chirp, and writes zeros for those behind the last of the line.
  // filter multiplies by the filter, and demodulate by the chirp again.
  void (*modulate)(const struct plaitk_fft *f, const void *in, int64_t step, int64_t imag, int64_t first, int64_t last,
                   void *product);
  void (*filter)(const struct plaitk_fft *f, int64_t first, int64_t last, void *product);
  void (*demodulate)(const struct plaitk_fft *f, const void *product, int64_t first, int64_t last, void *out, int64_t step,
                     int64_t imag, double scale);
  // separate and join work on elements from `first` to `last` and those opposite.
  void (*separate)(const struct plaitk_fft *f, const void *points, int64_t first, int64_t last, void *out, int64_t step);
  void (*join)(const struct plaitk_fft *f, const void *in, int64_t step, int64_t first, int64_t last, void *points);
};

// fft_kernels_of returns the kernels of a dtype for this machine.
const struct fft_kernels *fft_kernels_of(int dtype);

#endif
