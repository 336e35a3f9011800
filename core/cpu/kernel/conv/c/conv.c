// Picks the way to compute each pass.
#include "passes.h"

static int64_t weights_of(const plaitk_conv_shape *s) {
  return s->cout * (s->cin / s->groups) * s->kernel[0] * s->kernel[1] * s->kernel[2];
}

static int64_t outputs_of(const plaitk_conv_shape *s) { return s->n * s->cout * s->out[0] * s->out[1] * s->out[2]; }
static int64_t inputs_of(const plaitk_conv_shape *s) { return s->n * s->cin * s->in[0] * s->in[1] * s->in[2]; }

static int64_t scratch_of(const plait_pool *pool, const plaitk_conv_shape *s, plaitk_conv_pass pass) {
  if (plaitk_conv_suits_depthwise(s, pass)) return plaitk_conv_depthwise_scratch(pool, s, pass);
  if (plaitk_conv_suits_winograd(s, pass)) return plaitk_conv_winograd_scratch(pool, s, pass);
  if (plaitk_conv_suits_products(s, pass)) return plaitk_conv_products_scratch(pool, s, pass);
  return pass == CONV_WEIGHT_GRAD ? plaitk_conv_dots_scratch(pool, s) : plaitk_conv_taps_scratch(pool, s, pass);
}

int64_t plaitk_conv_forward_scratch(const plait_pool *pool, const plaitk_conv_shape *s) {
  return outputs_of(s) == 0 ? 0 : scratch_of(pool, s, CONV_FORWARD);
}

void plaitk_conv_forward(plait_pool *pool, const plaitk_conv_shape *s, const void *x, const void *w, const void *bias,
                         void *y, void *scratch) {
  if (outputs_of(s) == 0) return;
  if (plaitk_conv_suits_depthwise(s, CONV_FORWARD)) {
    plaitk_conv_by_depthwise(pool, s, CONV_FORWARD, x, w, bias, y, scratch);
  } else if (plaitk_conv_suits_winograd(s, CONV_FORWARD)) {
    plaitk_conv_by_winograd(pool, s, CONV_FORWARD, x, w, bias, y, scratch);
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
