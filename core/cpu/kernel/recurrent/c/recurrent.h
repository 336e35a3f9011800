// Recurrent networks: the steps of one layer in one direction, after the input's product with its weights.
//
// A step multiplies the former state with the recurrent weights and applies the gates to the sums. Backwards, a step
// multiplies the next one's gradients of the gates with them. Sequences of a batch do not depend on each other, nor do
// features within a step, so the work is cut along one of the two.
#ifndef PLAITK_RECURRENT_H
#define PLAITK_RECURRENT_H

#include <stdint.h>

#include "../../../include/plait_pool.h"

enum { RECURRENT_LSTM = 0, RECURRENT_GRU = 1 };

// Tensors are contiguous and of one dtype, PLAIT_F32 or PLAIT_F64. A step's values are those of all sequences.
struct plaitk_recurrent {
  int32_t kind, dtype, reverse;
  int64_t steps, n, hidden;
  const void *w;               // [gates * hidden, hidden], with these strides
  int64_t w_row, w_col;
  const void *x;               // forward: [steps, n, gates * hidden], the input's part of the gates
  const void *bias;            // forward: [3 * hidden] of a GRU's recurrent part, or NULL
  const void *h0, *c0;         // [n, hidden]; c0 is an LSTM's
  void *y, *c;                 // [steps, n, hidden]: states, and an LSTM's cells
  void *acts;                  // [steps, n, 4 * hidden]: i f g o, or r z n and the recurrent part of n
  int64_t acts_step;           // elements from step to step; 0 if only one is kept, for a forward without a backward
  const void *dy, *dc;         // backward: [steps, n, hidden] or NULL
  void *dx, *ds;               // backward: [steps, n, gates * hidden], of the input's and the recurrent part of the gates
  void *carry;                 // backward: [n, hidden], of an LSTM's c0, or of h0 other than through a GRU's gates
  void *scratch;               // plaitk_recurrent_scratch bytes
};

int64_t plaitk_recurrent_scratch(const struct plaitk_recurrent *a, int backward);
void plaitk_recurrent_run(plait_pool *pool, const struct plaitk_recurrent *a, int backward);

#endif
