// The geometry of a block of output positions, and of the copy of the input that the block reads.
#ifndef PLAITK_CONV_LATTICE_H
#define PLAITK_CONV_LATTICE_H

#include "conv.h"
#include "io.h"
#include "micro.h"

// How the positions of a block are laid out in vectors.
enum {
  CONV_ROWS,    // each row starts a new vector
  CONV_FLAT,    // rows follow each other with the padding between them; sums on padding are discarded
  CONV_PACKED,  // no gaps: the input is copied once for each tap
};

typedef struct {
  // The lattice of positions q: out = q * out_step + out_start, in = q * in_step + off0 + tap * off_step.
  int64_t q[3], out_step[3], out_start[3], in_step[3], off0[3], off_step[3];
  // The taps of the kernel in this lattice: tap0 + j * tap_step for j < nt.
  int64_t nt[3], tap0[3], tap_step[3];
  int64_t size[3];      // the size of the input's plane
  int64_t channels, k;  // channels of a group that are copied together; k = channels * taps

  // An offset is a * in_step + r with 0 <= r < in_step. The copy holds a plane for each r that occurs. r repeats with
  // period res from tap to tap; a runs from amin to amin + span.
  int64_t res[3], amin[3], span[3];

  // The blocks of images and positions.
  int mode;
  int64_t images, nb, n[3];        // block sizes
  int64_t blocks_b, blocks[3];     // numbers of blocks
  int64_t pitch, plane, image;     // strides in the copy, in elements: of a row, of a plane, of an image
  int64_t channel;
  int64_t copy, vectors;           // elements of a copy and vectors of a block, at most
} plaitk_conv_lattice;

// A block of positions: images b0 + [0, nb), positions q0 + [0, n).
typedef struct {
  int64_t b0, nb, q0[3], n[3];
  int64_t pitch[3];                // distances of images, slices and rows among the positions
  int64_t vectors;
} plaitk_conv_block;

void plaitk_conv_lattice_forward(plaitk_conv_lattice *l, const plaitk_conv_shape *s);
// The lattice of input positions that are `residue` modulo stride.
void plaitk_conv_lattice_input_grad(plaitk_conv_lattice *l, const plaitk_conv_shape *s, const int64_t residue[3]);

// Splits the lattice into blocks of about `positions` positions. Their copies have at most `copy` elements, unless a
// row is longer. rows is the number of sums at each position. With zero_tail, positions that do not exist read only
// zeros.
void plaitk_conv_lattice_cut(plaitk_conv_lattice *l, int64_t channels, int64_t images, int64_t rows, int lanes,
                             int64_t positions, int64_t copy, int zero_tail);

int64_t plaitk_conv_lattice_blocks(const plaitk_conv_lattice *l);

// Writes the offsets of the k taps in the copy.
void plaitk_conv_lattice_koff(const plaitk_conv_lattice *l, int64_t *koff);

plaitk_conv_block plaitk_conv_lattice_block(const plaitk_conv_lattice *l, int64_t index, int lanes);

// Writes the offsets of the block's vectors in the copy.
void plaitk_conv_lattice_base(const plaitk_conv_lattice *l, const plaitk_conv_block *b, int lanes, int64_t *base);

// Copies the block's input for channels [channel, channel + count) of total.
void plaitk_conv_lattice_fill(const plaitk_conv_lattice *l, const plaitk_conv_block *b, const plaitk_conv_io *io,
                              const void *src, int64_t channel, int64_t count, int64_t total, int lanes, void *dst);

PLAIT_INLINE int64_t plaitk_conv_min(int64_t a, int64_t b) { return a < b ? a : b; }
PLAIT_INLINE int64_t plaitk_conv_max(int64_t a, int64_t b) { return a > b ? a : b; }
PLAIT_INLINE int64_t plaitk_conv_ceil(int64_t a, int64_t b) { return (a + b - 1) / b; }
PLAIT_INLINE int64_t plaitk_conv_floor(int64_t a, int64_t b) { return a >= 0 ? a / b : -((-a + b - 1) / b); }
PLAIT_INLINE int64_t plaitk_conv_volume(const int64_t n[3]) { return n[0] * n[1] * n[2]; }
PLAIT_INLINE int64_t plaitk_conv_round(int64_t a, int64_t b) { return plaitk_conv_ceil(a, b) * b; }

// plaitk_conv_balance returns the size of equal parts of a whole, which are not larger than `part` and at least 1.
PLAIT_INLINE int64_t plaitk_conv_balance(int64_t whole, int64_t part) {
  part = plaitk_conv_max(1, plaitk_conv_min(part, whole));
  return whole == 0 ? 1 : plaitk_conv_ceil(whole, plaitk_conv_ceil(whole, part));
}

#endif
