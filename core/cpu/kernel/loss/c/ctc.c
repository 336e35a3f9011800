#include "ctc.h"

#include <math.h>
#include <string.h>

#include "../../../include/plait_exp_below.h"
#include "../../../include/plait_kernel.h"
#include "../../../include/plait_view.h"

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("no-trapping-math") // else comparisons are not vectorised
#endif

enum { BEFORE = 2, ROWS = 5 }; // what is -inf before the variables of a row; rows of scratch of a sample

struct job {
  const struct plaitk_ctc *p;
  const int64_t *lengths;
  const void *dloss;
  void *loss, *forward, *dx, *scratch;
};

#define T float
#define EXP plait_exp_belowf
#define LOG plait_vm_logf
#define FN(name) name##_f32
#include "ctc_impl.h"

#define T double
#define EXP plait_vm_exp
#define LOG plait_vm_log
#define FN(name) name##_f64
#include "ctc_impl.h"

static void forward_chunk(void *arg, int64_t sample) {
  const struct job *j = arg;
  (j->p->dtype == PLAIT_F64 ? forward_f64 : forward_f32)(j, sample);
}

static void backward_chunk(void *arg, int64_t sample) {
  const struct job *j = arg;
  (j->p->dtype == PLAIT_F64 ? backward_f64 : backward_f32)(j, sample);
}

int64_t plaitk_ctc_scratch(const struct plaitk_ctc *p) { return p->samples * ROWS * (p->places + BEFORE) * plait_dtype_size((int)p->dtype); }

int64_t plaitk_ctc(plait_pool *pool, const struct plaitk_ctc *p, const int64_t *lengths, void *loss, void *forward, void *scratch) {
  const int64_t *targets = p->targets;
  for (int64_t i = 0; i < p->samples; i++) {
    for (int64_t k = lengths[3 * i]; k < lengths[3 * i] + lengths[3 * i + 2]; k++) {
      if (targets[k] < 0 || targets[k] >= p->classes) return k;
    }
  }
  plait_parallel(pool, p->samples, forward_chunk, &(struct job){.p = p, .lengths = lengths, .loss = loss, .forward = forward, .scratch = scratch});
  return -1;
}

void plaitk_ctc_backward(plait_pool *pool, const struct plaitk_ctc *p, const int64_t *lengths, const void *dloss, const void *forward, void *dx,
                         void *scratch) {
  plait_parallel(pool, p->samples, backward_chunk,
                 &(struct job){.p = p, .lengths = lengths, .dloss = dloss, .forward = (void *)forward, .dx = dx, .scratch = scratch});
}
