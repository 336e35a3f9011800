// The plan of a call: how its elements are split into blocks and chunks. Private to this folder.
#ifndef PLAITK_ELEMENTWISE_PLAN_H
#define PLAITK_ELEMENTWISE_PLAN_H

#include "../../copying/c/copying.h"
#include "elementwise.h"

enum {
  SCRATCH = 8192,  // bytes of one operand's block; a few blocks fit the L1 cache
  CHUNK = 16384,   // elements that a thread takes at a time, at most
  EVEN = 8,
  LINE = 64,       // elements of which a chunk has a multiple: whole cache lines
  SHORT_ROW = 32,  // shorter rows are gathered into blocks; longer ones have a call of the loop each
};

// The dtypes of a complex number's two parts in memory, after those of one number.
enum { PAIR_F32 = PLAIT_DTYPES, PAIR_F64 };

PLAIT_INLINE int64_t size_of(int64_t dtype) {
  return dtype == PAIR_F32 ? 8 : dtype == PAIR_F64 ? 16 : plait_dtype_size(dtype);
}

// Writes a call of the kernel's second loop, and its kernel. Returns false if there is none, or if some parts are not next
// to each other in memory, of the loop's type.
bool plaitk_elementwise_join(const plaitk_elementwise_call *call, plaitk_elementwise_call *joined, plaitk_elementwise_kernel *kernel);

// Runs the loop of a call that plaitk_elementwise_join wrote, over n elements.
int64_t plaitk_elementwise_run_pairs(const plaitk_elementwise_kernel *kernel, void *const *ptr, const plaitk_scalar *attr, int64_t n);

// Returns the conversion of real numbers to complex ones, from a dtype.
plaitk_convert plaitk_elementwise_widen(int dtype);

// Memory of one element of any type.
typedef union {
  char bytes[16];
  double alignment;
} plaitk_element;

// Writes the element of a loop's type that stands for a number.
void plaitk_elementwise_number(plaitk_element *to, int type, plaitk_scalar value, double imaginary);

// An operand of a plan.
typedef struct {
  char *data;
  plaitk_scalar value;
  double imaginary;
  int64_t stride[PLAIT_MAX_DIMS];  // along the plan's dimensions, in elements
  int64_t row, col;                // strides inside a block: the last two of stride
  int dtype, type;                 // dtypes in memory and in the loop
  int size, type_size;             // bytes of an element in memory and in the loop
  bool scalar, packed, streamed;
  bool single;             // the loop reads one element for a row
  bool paired;             // this lane and the next are the real and the imaginary parts of complex numbers
  plaitk_convert convert;  // conversion between memory and scratch; NULL where dtype == type
} lane;

// The dimensions are in the order of the outputs' strides. Adjacent ones are merged where all operands allow it. The
// last two are split into blocks. Blocks and chunks depend on the call only, not on the threads.
typedef struct {
  const plaitk_elementwise_kernel *kernel;
  plaitk_elementwise_loop loop;
  const plaitk_scalar *attr;
  int nin, n;  // number of inputs and of all lanes
  int ndim;
  int64_t shape[PLAIT_MAX_DIMS + 1];
  int64_t rows, cols;  // of a full block
  bool joined;         // plaitk_elementwise_join wrote the call
  bool by_row;         // the loop runs once per row, else once per block
  bool streamed;       // some output uses non-temporal stores
  int64_t part;        // elements per non-temporal store pass
  int64_t blocks, blocks_per_chunk;
  int64_t status;
  lane lane[PLAITK_ELEMENTWISE_MAX_OPERANDS];
  plaitk_element number[PLAITK_ELEMENTWISE_MAX_IN];  // of single lanes that are scalars
} plan;

// The position of a thread among the blocks.
typedef struct {
  int64_t index[PLAIT_MAX_DIMS];  // of the outer dimensions
  int64_t row, col;               // of the block's first element
  char *data[PLAITK_ELEMENTWISE_MAX_OPERANDS];  // address of each operand at the outer index
} cursor;

PLAIT_INLINE int64_t min64(int64_t a, int64_t b) { return a < b ? a : b; }

// Plans the call. Returns false if there are no elements.
bool plaitk_elementwise_plan(plan *p, const plaitk_elementwise_call *call);

void plaitk_elementwise_seek(const plan *p, cursor *c, int64_t block);
void plaitk_elementwise_advance(const plan *p, cursor *c);

#endif
