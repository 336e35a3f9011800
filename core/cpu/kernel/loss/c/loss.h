// Classification losses over contiguous [batch, classes, inner] scores of a floating dtype. Losses per sample are
// [batch, inner]. weight [classes], of dtype wdtype, may be NULL.
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

// Cross entropy of softmax(x). loss is one element, or one per sample without a reduction. lse [batch, inner] and
// total [1] are for the backward, in float32 or float64: the log-sum-exp of each sample and what a mean divides by.
// Returns -1, or the position of the first class index that is neither ignore_index nor a class.
int64_t plaitk_loss_cross_entropy(plait_pool *pool, const struct plaitk_loss *p, void *loss, void *lse, void *total,
                                  void *scratch);

// dx [batch, classes, inner] and, for class probabilities, dprobs; each may be NULL. dy is like loss.
void plaitk_loss_cross_entropy_backward(plait_pool *pool, const struct plaitk_loss *p, const void *dy, const void *lse,
                                        const void *total, void *dx, void *dprobs, void *scratch);

// Negative log likelihood: x holds log-probabilities.
int64_t plaitk_loss_nll(plait_pool *pool, const struct plaitk_loss *p, void *loss, void *total, void *scratch);
void plaitk_loss_nll_backward(plait_pool *pool, const struct plaitk_loss *p, const void *dy, const void *total, void *dx,
                              void *scratch);

// Multi-label margin loss of x [batch, classes] with inner == 1: the classes of a sample are its targets before the first -1.
// loss is [batch], the sum over targets j and other classes i of max(0, 1 - x[j] + x[i]), over the number of classes; slope,
// which may be NULL in loss's place, its derivative [batch, classes]. Returns -1 or the position of the first target that is
// no class.
int64_t plaitk_loss_multilabel_margin(plait_pool *pool, const struct plaitk_loss *p, void *loss, void *slope,
                                      void *scratch);

// Returns -1, or the position of the first of n contiguous elements that is not in [0, 1].
int64_t plaitk_loss_improbable(const void *x, int dtype, int64_t n);

// The bytes that each of these needs at scratch.
int64_t plaitk_loss_scratch(const struct plaitk_loss *p);

#endif
