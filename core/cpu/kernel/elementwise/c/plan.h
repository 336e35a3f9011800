// How a call is carried out: private to this folder.
#ifndef PLAITK_ELEMENTWISE_PLAN_H
#define PLAITK_ELEMENTWISE_PLAN_H

#include "../../copying/c/copying.h"
#include "elementwise.h"

enum {
  SCRATCH = 8192,  // bytes of one operand's block: a few of them fit the first-level cache
  CHUNK = 16384,   // elements that one thread takes at a time
  SHORT_ROW = 32,  // rows below this are gathered into blocks rather than looped over one by one
};

// An operand within a plan.
typedef struct {
  char *data;
  plaitk_scalar value;
  int64_t stride[PLAIT_MAX_DIMS];  // along the plan's dimensions, in elements
  int64_t row, col;                // strides inside a block: the last two of the above
  int dtype, type;                 // in memory, in the loop
  int size, type_size;             // of these, in bytes
  bool scalar, packed, streamed;
  plaitk_convert convert;  // between memory and scratch; NULL where dtype == type
} lane;

// Dimensions in the order of the outputs' strides, neighbours merged where all operands allow it. The last two are cut into
// blocks; everything about blocks and chunks follows from the call alone, not from who runs it.
typedef struct {
  plaitk_elementwise_loop loop;
  const plaitk_scalar *attr;
  int nin, n;  // inputs; lanes
  int ndim;
  int64_t shape[PLAIT_MAX_DIMS + 1];
  int64_t rows, cols;  // of a full block
  bool by_row;         // the loop runs once a row, else once a block
  bool streamed;       // some output is written past the caches
  int64_t part;        // elements that are written at a time then
  int64_t blocks, blocks_per_chunk;
  int64_t status;
  lane lane[PLAITK_ELEMENTWISE_MAX_OPERANDS];
} plan;

// Where a thread is among the blocks.
typedef struct {
  int64_t index[PLAIT_MAX_DIMS];  // of the outer dimensions
  int64_t row, col;               // of the block's first element
  char *data[PLAITK_ELEMENTWISE_MAX_OPERANDS];  // at the outer index
} cursor;

PLAIT_INLINE int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

// Plans the call. False if there are no elements.
bool plaitk_elementwise_plan(plan *p, const plaitk_elementwise_call *call);

void plaitk_elementwise_seek(const plan *p, cursor *c, int64_t block);
void plaitk_elementwise_advance(const plan *p, cursor *c);

#endif
