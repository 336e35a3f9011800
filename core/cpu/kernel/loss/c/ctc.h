// Connectionist temporal classification. core/contract/loss.go says what the operands are.
//
// A chunk is a sample. The forward variables of a step are a row of `places` elements after two that are -inf, so that each is made of three
// neighbours of the row before. The derivative goes back by the shares that these three had, from probabilities to probabilities.
#ifndef PLAITK_CTC_H
#define PLAITK_CTC_H

#include <stdint.h>

#include "../../../include/plait_pool.h"

struct plaitk_ctc {
  const void *x, *targets; // float32 or float64, and int64
  int64_t dtype, steps, samples, classes, places, blank;
};

// The bytes of scratch that a call needs.
int64_t plaitk_ctc_scratch(const struct plaitk_ctc *p);

// `lengths` has the first label, the steps and the labels of each sample. forward may be NULL. Returns -1, or the position of the first target in
// use that is no class.
int64_t plaitk_ctc(plait_pool *pool, const struct plaitk_ctc *p, const int64_t *lengths, void *loss, void *forward, void *scratch);
void plaitk_ctc_backward(plait_pool *pool, const struct plaitk_ctc *p, const int64_t *lengths, const void *dloss, const void *forward, void *dx,
                         void *scratch);

#endif
