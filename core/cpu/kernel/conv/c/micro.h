// The micro-kernels for vector registers of one width.
#ifndef PLAITK_CONV_MICRO_H
#define PLAITK_CONV_MICRO_H

#include <stdint.h>

// taps adds (or with add == 0 stores) to acc[i * ld + l], for rows i of the tile and nv vectors of positions,
//   sum over k < kc of a[k * rows + i] * x[base[v] + koff[k] + lane].
// An accumulator sums `chain` steps before the partial sum is added to the rest: the rounding error grows with the
// length of a sum.
typedef void (*plaitk_conv_taps)(int64_t kc, const void *a, const int64_t *koff, const void *x, const int64_t *base,
                                 void *acc, int64_t ld, int add, int64_t chain);

enum { CONV_CHAIN = 96 };

// dots adds to out[i * ld + j], for i < rows and j < cols of the tile,
//   sum over v < nv, lanes of dy[i * ldy + v * lanes + lane] * x[base[v] + koff[j] + lane].
// koff has an entry for every column of the tile, and dy a row for every row of the tile, also past rows and cols.
typedef void (*plaitk_conv_dots)(int64_t nv, const void *dy, int64_t ldy, const void *x, const int64_t *base,
                                 const int64_t *koff, void *out, int64_t ld, int64_t rows, int64_t cols);

enum { CONV_HEIGHTS = 3, CONV_WIDTHS = 3 };

// A micro has the tiles for one element type and one instruction set.
typedef struct {
  int lanes;         // elements of a vector
  int heights;       // used entries of taps
  struct {
    int rows;        // rows of the tile, in descending order
    int vectors[CONV_WIDTHS];  // vectors of the tile, in descending order; 0 ends the list
    plaitk_conv_taps fn[CONV_WIDTHS];
  } taps[CONV_HEIGHTS];
  struct {
    int rows, cols;
    plaitk_conv_dots fn;
  } dots[2];         // the general tile, and the tile for a single row
} plaitk_conv_micro;

const plaitk_conv_micro *plaitk_conv_micro_for(int is_double);

// plaitk_conv_height returns the index of the lowest tile that holds so many rows, or of the highest.
static inline int plaitk_conv_height(const plaitk_conv_micro *m, int64_t rows) {
  int h = 0;
  while (h + 1 < m->heights && m->taps[h + 1].rows >= rows) h++;
  return h;
}

#endif
