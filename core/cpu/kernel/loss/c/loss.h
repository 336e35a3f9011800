// Classification losses on contiguous [batch, classes, inner] scores of a floating dtype. Losses of samples are [batch,
// inner]. weight [classes], of dtype wdtype, may be NULL.
#ifndef PLAITK_LOSS_H
#define PLAITK_LOSS_H

#include <stdint.h>

#include "../../../include/plait_pool.h"

enum plaitk_loss_reduction { PLAITK_LOSS_NONE = 0, PLAITK_LOSS_MEAN = 1, PLAITK_LOSS_SUM = 2 };

struct plaitk_loss {
  int dtype, wdtype, reduction;
  const void *x;
  const int64_t *target;  // class indices [batch, inner], or NULL
  const void *probs;      // class probabilities like x, or NULL
  const void *weight;
  int64_t batch, classes, inner, ignore_index;
  double smoothing;
};

// Cross entropy of softmax(x). loss is one element, or one per sample without a reduction. The backward reads lse
// [batch, inner] and total [1], in float32 or float64: the log-sum-exp of each sample and the divisor of a mean.
// Returns -1, or the position of the first target that is neither ignore_index nor a class.
int64_t plaitk_loss_cross_entropy(plait_pool *pool, const struct plaitk_loss *p, void *loss, void *lse, void *total,
                                  void *scratch);

// Computes dx [batch, classes, inner] and, for class probabilities, dprobs. Each may be NULL. dy is like loss.
void plaitk_loss_cross_entropy_backward(plait_pool *pool, const struct plaitk_loss *p, const void *dy, const void *lse,
                                        const void *total, void *dx, void *dprobs, void *scratch);

// Negative log likelihood, where x holds log-probabilities.
int64_t plaitk_loss_nll(plait_pool *pool, const struct plaitk_loss *p, void *loss, void *total, void *scratch);
void plaitk_loss_nll_backward(plait_pool *pool, const struct plaitk_loss *p, const void *dy, const void *total, void *dx,
                              void *scratch);

// Multi-label margin loss of x [batch, classes] with inner == 1. A sample's targets are the classes before its first
// -1. loss is [batch]: the sum of max(0, 1 - x[j] + x[i]) over targets j and other classes i, divided by the number of
// classes. slope is its derivative [batch, classes]. Either may be NULL. Returns -1 or the position of the first target
// that is no class.
int64_t plaitk_loss_multilabel_margin(plait_pool *pool, const struct plaitk_loss *p, void *loss, void *slope,
                                      void *scratch);

// Returns -1, or the position of the first of n contiguous elements that is outside [0, 1].
int64_t plaitk_loss_improbable(const void *x, int dtype, int64_t n);

// The bytes of scratch that each of these functions needs.
int64_t plaitk_loss_scratch(const struct plaitk_loss *p);

#endif
