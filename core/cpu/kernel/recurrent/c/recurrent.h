// Recurrent networks: the steps of one layer in one direction, after the input's product with its weights.
//
// A forward step multiplies the previous state by the recurrent weights and applies the gates to the sums. A backward
// step multiplies the next step's gate gradients by them. Sequences of a batch are independent, and so are features
// within a step. The work is split along one of these two.
#ifndef PLAITK_RECURRENT_H
#define PLAITK_RECURRENT_H

#include <stdint.h>

#include "../../../include/plait_pool.h"

enum { RECURRENT_LSTM = 0, RECURRENT_GRU = 1 };

// Tensors are contiguous. A step has the values of all sequences. dtype, PLAIT_BF16, PLAIT_F32 or PLAIT_F64, is that of
// the weights, x, h0, y and their gradients; the others are float32 for PLAIT_BF16.
struct plaitk_recurrent {
  int32_t kind, dtype, reverse;
  int64_t steps, n, hidden;
  const void *w;               // [gates * hidden, hidden], with these strides
  int64_t w_row, w_col;
  const void *x;               // forward: [steps, n, gates * hidden], the input's part of the gates
  const void *bias;            // forward: [3 * hidden], the bias of a GRU's recurrent part, or NULL
  const void *h0, *c0;         // [n, hidden]; c0 only for LSTM
  void *y, *c;                 // [steps, n, hidden]: hidden states, and the cell states of an LSTM
  void *acts;                  // [steps, n, 4 * hidden]: i f g o, or r z n and the recurrent part of n
  int64_t acts_step;           // stride of steps in acts; 0 to keep a single step, if no backward follows
  const void *dy, *dc;         // backward: [steps, n, hidden] or NULL
  void *dx, *ds;               // backward: [steps, n, gates * hidden], gradients of the input's and of the recurrent part of the gates
  void *carry;                 // backward: [n, hidden], the gradient of an LSTM's c0, or of a GRU's h0 except through the gates
  void *scratch;               // plaitk_recurrent_scratch bytes
};

int64_t plaitk_recurrent_scratch(plait_pool *pool, const struct plaitk_recurrent *a, int backward);
void plaitk_recurrent_run(plait_pool *pool, const struct plaitk_recurrent *a, int backward);

#endif
