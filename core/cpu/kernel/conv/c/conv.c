// Picks the way to compute each pass.
#include "passes.h"

#include "../../../include/plait_slots.h"

static int64_t weights_of(const plaitk_conv_shape *s) {
  return s->cout * (s->cin / s->groups) * s->kernel[0] * s->kernel[1] * s->kernel[2];
}

static int64_t outputs_of(const plaitk_conv_shape *s) { return s->n * s->cout * s->out[0] * s->out[1] * s->out[2]; }
static int64_t inputs_of(const plaitk_conv_shape *s) { return s->n * s->cin * s->in[0] * s->in[1] * s->in[2]; }

static int64_t scratch_of(const plait_pool *pool, const plaitk_conv_shape *s, plaitk_conv_pass pass) {
  if (plaitk_conv_suits_depthwise(s, pass)) return plaitk_conv_depthwise_scratch(pool, s, pass);
  if (plaitk_conv_suits_winograd(s, pass)) return plaitk_conv_winograd_scratch(pool, s, pass);
  if (plaitk_conv_suits_pairs(s, pass)) return plaitk_conv_pairs_scratch(s, pass);
  if (plaitk_conv_suits_products(s, pass)) return plaitk_conv_products_scratch(pool, s, pass);
  return pass == CONV_WEIGHT_GRAD ? plaitk_conv_dots_scratch(pool, s) : plaitk_conv_taps_scratch(pool, s, pass);
}

// Rounds elements of the weight.
PLAIT_CLONES static void round_weights(uint16_t *restrict to, const float *restrict from, int64_t n) {
#pragma omp simd
  for (int64_t i = 0; i < n; i++) to[i] = plait_f32_to_bf16(from[i]);
}

#define ROUND_ELEMENTS (16 << 10)  // of a chunk

typedef struct {
  const float *from;
  uint16_t *to;
  int64_t n;
} rounding;

static void round_chunk(void *arg, int64_t chunk) {
  const rounding *r = arg;
  int64_t begin = chunk * ROUND_ELEMENTS, left = r->n - begin;
  round_weights(r->to + begin, r->from + begin, left < ROUND_ELEMENTS ? left : ROUND_ELEMENTS);
}

// Reports whether the weight has to be rounded first.
static int rounds_first(const plaitk_conv_shape *s) {
  return s->rounded && (plaitk_conv_suits_depthwise(s, CONV_FORWARD) || !plaitk_conv_suits_pairs(s, CONV_FORWARD));
}

int64_t plaitk_conv_forward_scratch(const plait_pool *pool, const plaitk_conv_shape *s) {
  if (outputs_of(s) == 0) return 0;
  char *at = NULL;
  if (rounds_first(s)) plait_carve(&at, weights_of(s) * (int64_t)sizeof(uint16_t));
  return (int64_t)(intptr_t)at + scratch_of(pool, s, CONV_FORWARD);
}

void plaitk_conv_forward(plait_pool *pool, const plaitk_conv_shape *s, const void *x, const void *w, const void *bias,
                         void *y, void *scratch) {
  if (outputs_of(s) == 0) return;
  if (rounds_first(s)) {
    char *at = scratch;
    rounding r = {.from = w, .n = weights_of(s)};
    r.to = plait_carve(&at, r.n * (int64_t)sizeof *r.to);
    plait_parallel(pool, (r.n + ROUND_ELEMENTS - 1) / ROUND_ELEMENTS, round_chunk, &r);
    w = r.to, scratch = at;
  }
  if (plaitk_conv_suits_depthwise(s, CONV_FORWARD)) {
    plaitk_conv_by_depthwise(pool, s, CONV_FORWARD, x, w, bias, y, scratch);
  } else if (plaitk_conv_suits_winograd(s, CONV_FORWARD)) {
    plaitk_conv_by_winograd(pool, s, CONV_FORWARD, x, w, bias, y, scratch);
  } else if (plaitk_conv_suits_pairs(s, CONV_FORWARD)) {
    plaitk_conv_by_pairs(pool, s, CONV_FORWARD, x, w, bias, y, scratch);
  } else if (plaitk_conv_suits_products(s, CONV_FORWARD)) {
    plaitk_conv_by_products(pool, s, CONV_FORWARD, x, w, bias, y, scratch);
  } else {
    plaitk_conv_by_taps(pool, s, CONV_FORWARD, x, w, bias, y, scratch);
  }
}

int64_t plaitk_conv_input_grad_scratch(const plait_pool *pool, const plaitk_conv_shape *s) {
  return inputs_of(s) == 0 ? 0 : scratch_of(pool, s, CONV_INPUT_GRAD);
}

void plaitk_conv_input_grad(plait_pool *pool, const plaitk_conv_shape *s, const void *dy, const void *w,
                            const void *bias, void *dx, void *scratch) {
  if (inputs_of(s) == 0) return;
  if (plaitk_conv_suits_depthwise(s, CONV_INPUT_GRAD)) {
    plaitk_conv_by_depthwise(pool, s, CONV_INPUT_GRAD, dy, w, bias, dx, scratch);
  } else if (plaitk_conv_suits_winograd(s, CONV_INPUT_GRAD)) {
    plaitk_conv_by_winograd(pool, s, CONV_INPUT_GRAD, dy, w, bias, dx, scratch);
  } else if (plaitk_conv_suits_pairs(s, CONV_INPUT_GRAD)) {
    plaitk_conv_by_pairs(pool, s, CONV_INPUT_GRAD, dy, w, bias, dx, scratch);
  } else if (plaitk_conv_suits_products(s, CONV_INPUT_GRAD)) {
    plaitk_conv_by_products(pool, s, CONV_INPUT_GRAD, dx, w, bias, dy, scratch);
  } else {
    plaitk_conv_by_taps(pool, s, CONV_INPUT_GRAD, dy, w, bias, dx, scratch);
  }
}

int64_t plaitk_conv_weight_grad_scratch(const plait_pool *pool, const plaitk_conv_shape *s) {
  return weights_of(s) == 0 || outputs_of(s) == 0 ? 0 : scratch_of(pool, s, CONV_WEIGHT_GRAD);
}

void plaitk_conv_weight_grad(plait_pool *pool, const plaitk_conv_shape *s, const void *x, const void *dy, void *dw,
                             void *scratch) {
  int64_t weights = weights_of(s);
  if (weights == 0) return;
  if (outputs_of(s) == 0) {
    memset(dw, 0, (size_t)(weights * plait_dtype_size(s->dtype)));
  } else if (plaitk_conv_suits_depthwise(s, CONV_WEIGHT_GRAD)) {
    plaitk_conv_by_depthwise(pool, s, CONV_WEIGHT_GRAD, x, dy, NULL, dw, scratch);
  } else if (plaitk_conv_suits_products(s, CONV_WEIGHT_GRAD)) {
    plaitk_conv_by_products(pool, s, CONV_WEIGHT_GRAD, x, dw, NULL, dy, scratch);
  } else {
    plaitk_conv_by_dots(pool, s, x, dy, dw, scratch);
  }
}
