#include "loss.h"

#include <math.h>
#include <stdatomic.h>

#include "../../../include/plait_mixed.h"

// Number of elements that are summed in the accumulator type. Sums of such blocks are in float64.
#define SUM_BLOCK 2048
#define SUM_ROWS 32
#define COLUMN_BLOCK 256
#define CHUNK_ELEMENTS 16384
// Samples of so few classes are computed ROWS at a time.
#define FEW_CLASSES 128
#define ROWS 16

enum pass { ENTROPY, ENTROPY_GRAD, NLL_GRAD, MULTILABEL };

struct job {
  const struct plaitk_loss *p;
  enum pass pass;
  const void *weight;  // of the accumulator type
  double weight_sum;
  double *losses, *shares;  // per sample: the loss, and its share of the divisor of a mean
  void *lse, *dx, *dprobs;
  const void *dy;
  double total;
  int64_t blocks, per_chunk;
  _Atomic int64_t bad;
};

// Reports whether a sample's target is a class. It records the first one that is neither a class nor ignored.
PLAIT_INLINE bool target_is_class(struct job *j, int64_t sample, int64_t y) {
  if (y == j->p->ignore_index) return false;
  if (y >= 0 && y < j->p->classes) return true;
  int64_t first = atomic_load_explicit(&j->bad, memory_order_relaxed);
  while (sample < first && !atomic_compare_exchange_weak(&j->bad, &first, sample)) {
  }
  return false;
}

// Returns the gradient of one sample's loss.
PLAIT_INLINE double loss_grad(const struct job *j, int64_t sample) {
  double g = plait_load(j->dy, j->p->dtype, j->p->reduction == PLAITK_LOSS_NONE ? sample : 0);
  return j->p->reduction == PLAITK_LOSS_MEAN ? g / j->total : g;
}

#define PLAIT_TEMPLATE "../kernel/loss/c/entropy.h"
#include "../../../include/plait_each_float.h"

// Computes the loss of one sample, and its derivative if dx is not NULL.
static void multilabel_block(struct job *j, int64_t batch) {
  const struct plaitk_loss *p = j->p;
  int64_t n = p->classes, base = batch * n, count = 0;
  const int64_t *target = p->target + base;
  for (; count < n && target[count] != -1; count++) {
    if (!target_is_class(j, base + count, target[count])) return;
  }
  double loss = 0, step = 1 / (double)n;
  for (int64_t i = 0; j->dx && i < n; i++) plait_store(j->dx, p->dtype, base + i, 0);
  for (int64_t i = 0; i < n; i++) {
    bool among = false;
    for (int64_t k = 0; k < count; k++) among |= target[k] == i;
    if (among) continue;
    double xi = plait_load(p->x, p->dtype, base + i), slope = 0;
    for (int64_t k = 0; k < count; k++) {
      double lack = 1 - plait_load(p->x, p->dtype, base + target[k]) + xi;
      if (!(lack > 0)) {
        loss += lack != lack ? lack : 0;
        continue;
      }
      loss += lack;
      slope += step;
      if (j->dx) plait_store(j->dx, p->dtype, base + target[k], plait_load(j->dx, p->dtype, base + target[k]) - step);
    }
    if (j->dx) plait_store(j->dx, p->dtype, base + i, slope);
  }
  j->losses[batch] = loss * step;
}

#define DISPATCH(fn, dtype, ...)                    \
  switch (dtype) {                                  \
    case PLAIT_F16: fn##_f16(__VA_ARGS__); break;   \
    case PLAIT_BF16: fn##_bf16(__VA_ARGS__); break; \
    case PLAIT_F32: fn##_f32(__VA_ARGS__); break;   \
    default: fn##_f64(__VA_ARGS__);                 \
  }

static void run_blocks(void *arg, int64_t chunk) {
  struct job *j = arg;
  const struct plaitk_loss *p = j->p;
  int64_t last = plait_min64(p->batch * j->blocks, (chunk + 1) * j->per_chunk);
  if (j->pass == ENTROPY && p->inner == 1 && p->classes <= FEW_CLASSES && !p->probs) {
    for (int64_t u = chunk * j->per_chunk; u < last; u += ROWS) DISPATCH(entropy_rows, p->dtype, j, u, plait_min64(ROWS, last - u));
    return;
  }
  for (int64_t u = chunk * j->per_chunk; u < last; u++) {
    int64_t batch = u / j->blocks, column = u % j->blocks * COLUMN_BLOCK;
    int64_t w = plait_min64(COLUMN_BLOCK, p->inner - column);
    switch (j->pass) {
      case ENTROPY: DISPATCH(entropy_block, p->dtype, j, batch, column, w); break;
      case ENTROPY_GRAD: DISPATCH(entropy_block_grad, p->dtype, j, batch, column, w); break;
      case MULTILABEL: multilabel_block(j, batch); break;
      default: DISPATCH(nll_block_grad, p->dtype, j, batch, column, w);
    }
  }
}

int64_t plaitk_loss_scratch(const struct plaitk_loss *p) { return (2 * p->batch * p->inner + p->classes) * 8; }

static void run_samples(void *arg, int64_t chunk) {
  struct job *j = arg;
  const struct plaitk_loss *p = j->p;
  int64_t first = chunk * SUM_BLOCK, last = plait_min64(first + SUM_BLOCK, p->batch * p->inner);
  DISPATCH(nll_samples, p->dtype, j, first, last);
}

static void prepare(struct job *j, const struct plaitk_loss *p, void *scratch) {
  j->p = p;
  j->losses = scratch;
  j->shares = j->losses + p->batch * p->inner;
  j->bad = INT64_MAX;
  j->weight_sum = (double)p->classes;
  if (p->weight) {
    int acc = plait_acc_dtype(p->dtype);
    void *copy = j->shares + p->batch * p->inner;
    j->weight_sum = 0;
    for (int64_t c = 0; c < p->classes; c++) {
      double v = plait_load(p->weight, p->wdtype, c);
      plait_store(copy, acc, c, v);
      j->weight_sum += v;
    }
    j->weight = copy;
  }
  j->blocks = plait_ceil_div(p->inner, COLUMN_BLOCK);
  j->per_chunk = plait_max64(1, CHUNK_ELEMENTS / plait_max64(1, p->classes * plait_min64(p->inner, COLUMN_BLOCK)));
}

static void run(plait_pool *pool, struct job *j, enum pass pass) {
  j->pass = pass;
  plait_parallel(pool, plait_ceil_div(j->p->batch * j->blocks, j->per_chunk), run_blocks, j);
}

// Reduces the losses of samples block by block, and writes the divisor of a mean.
static int64_t finish(struct job *j, void *loss, void *total) {
  const struct plaitk_loss *p = j->p;
  if (j->bad != INT64_MAX) return j->bad;
  int64_t n = p->batch * p->inner;
  double sum = 0, count = 0;
  for (int64_t b = 0; b < n; b += SUM_BLOCK) {
    double s = 0, c = 0;
    int64_t last = plait_min64(n, b + SUM_BLOCK);
    _Pragma("omp simd reduction(+ : s, c)") for (int64_t i = b; i < last; i++) {
      s += j->losses[i];
      c += j->shares[i];
    }
    sum += s;
    count += c;
  }
  if (total) plait_store(total, plait_acc_dtype(p->dtype), 0, count);
  if (p->reduction == PLAITK_LOSS_NONE) {
    for (int64_t i = 0; i < n; i++) plait_store(loss, p->dtype, i, j->losses[i]);
  } else {
    plait_store(loss, p->dtype, 0, p->reduction == PLAITK_LOSS_MEAN ? sum / count : sum);
  }
  return -1;
}

int64_t plaitk_loss_cross_entropy(plait_pool *pool, const struct plaitk_loss *p, void *loss, void *lse, void *total,
                                  void *scratch) {
  struct job j = {.lse = lse};
  prepare(&j, p, scratch);
  run(pool, &j, ENTROPY);
  return finish(&j, loss, total);
}

void plaitk_loss_cross_entropy_backward(plait_pool *pool, const struct plaitk_loss *p, const void *dy, const void *lse,
                                        const void *total, void *dx, void *dprobs, void *scratch) {
  struct job j = {.lse = (void *)lse, .dy = dy, .dx = dx, .dprobs = dprobs};
  prepare(&j, p, scratch);
  j.total = plait_load(total, plait_acc_dtype(p->dtype), 0);
  run(pool, &j, ENTROPY_GRAD);
}

int64_t plaitk_loss_nll(plait_pool *pool, const struct plaitk_loss *p, void *loss, void *total, void *scratch) {
  struct job j = {0};
  prepare(&j, p, scratch);
  plait_parallel(pool, plait_ceil_div(p->batch * p->inner, SUM_BLOCK), run_samples, &j);
  return finish(&j, loss, total);
}

void plaitk_loss_nll_backward(plait_pool *pool, const struct plaitk_loss *p, const void *dy, const void *total, void *dx,
                              void *scratch) {
  struct job j = {.dy = dy, .dx = dx};
  prepare(&j, p, scratch);
  j.total = plait_load(total, plait_acc_dtype(p->dtype), 0);
  run(pool, &j, NLL_GRAD);
}

int64_t plaitk_loss_multilabel_margin(plait_pool *pool, const struct plaitk_loss *p, void *loss, void *slope,
                                      void *scratch) {
  struct job j = {.dx = slope};
  prepare(&j, p, scratch);
  run(pool, &j, MULTILABEL);
  if (j.bad != INT64_MAX) return j.bad;
  for (int64_t i = 0; loss && i < p->batch; i++) plait_store(loss, p->dtype, i, j.losses[i]);
  return -1;
}

#define IMPROBABLE_BLOCK 4096

// Counts the elements outside [0, 1].
PLAIT_CLONES static int32_t improbable_f32(const float *x, int64_t n) {
  int32_t count = 0;
#pragma omp simd reduction(+ : count)
  for (int64_t i = 0; i < n; i++) count += !(x[i] >= 0 && x[i] <= 1);
  return count;
}

int64_t plaitk_loss_improbable(const void *x, int dtype, int64_t n) {
  for (int64_t from = 0; from < n; from += IMPROBABLE_BLOCK) {
    int64_t to = plait_min64(n, from + IMPROBABLE_BLOCK);
    if (dtype == PLAIT_F32 && improbable_f32((const float *)x + from, to - from) == 0) continue;
    for (int64_t i = from; i < to; i++) {
      double v = plait_load(x, dtype, i);
      if (!(v >= 0 && v <= 1)) return i;
    }
  }
  return -1;
}
