#include "special.h"

#include <math.h>

#include "../../../include/plait_kernel.h"

#define CHUNK_ELEMENTS 8192

// Returns the loop over floats of a function of one argument, or NULL if it has none.
static plaitk_special_loop loop_of(int32_t function) {
  if (function < SPECIAL_K0) return plaitk_special_loops_i[function - SPECIAL_I0];
  if (function < SPECIAL_J0) return plaitk_special_loops_k[function - SPECIAL_K0];
  if (function < SPECIAL_ERFCX) return plaitk_special_loops_jy[function - SPECIAL_J0];
  return function == SPECIAL_NDTRI ? plaitk_special_loop_ndtri : NULL;
}

// The same for doubles.
static plaitk_special_double_loop double_loop_of(int32_t function) {
  if (function < SPECIAL_K0) return plaitk_special_double_loops_i[function - SPECIAL_I0];
  if (function < SPECIAL_J0) return plaitk_special_double_loops_k[function - SPECIAL_K0];
  if (function < SPECIAL_Y0) return plaitk_special_double_loops_j[function - SPECIAL_J0];
  return function == SPECIAL_NDTRI ? plaitk_special_double_loop_ndtri : NULL;
}

static void run_chunk(void *arg, int64_t chunk) {
  const struct plaitk_special *s = arg;
  int64_t first = chunk * CHUNK_ELEMENTS, last = first + CHUNK_ELEMENTS < s->n ? first + CHUNK_ELEMENTS : s->n;
  bool wide = s->dtype == PLAIT_F64;
  if (s->op == SPECIAL_NEXTAFTER) {
    int64_t n = last - first;
    if (wide) {
      plaitk_special_next_after_f64((double *)s->out + first, (const double *)s->x + first, (const double *)s->y + first, n);
    } else {
      plaitk_special_next_after_f32((float *)s->out + first, (const float *)s->x + first, (const float *)s->y + first, n);
    }
    return;
  }
  plaitk_special_loop loop = s->op == SPECIAL_FUNCTION && !wide ? loop_of(s->function) : NULL;
  if (loop != NULL) {
    loop((float *)s->out + first, (const float *)s->x + first, last - first);
    return;
  }
  plaitk_special_double_loop double_loop = s->op == SPECIAL_FUNCTION && wide ? double_loop_of(s->function) : NULL;
  if (double_loop != NULL) {
    double_loop((double *)s->out + first, (const double *)s->x + first, last - first);
    return;
  }
  for (int64_t i = first; i < last; i++) {
    double x = wide ? ((const double *)s->x)[i] : ((const float *)s->x)[i], y = 0, r;
    if (s->op == SPECIAL_PAIR) y = wide ? ((const double *)s->y)[i] : ((const float *)s->y)[i];
    int exponent = 0;
    switch (s->op) {
      case SPECIAL_FREXP:
        r = frexp(x, &exponent);
        s->exponents[i] = isfinite(x) ? exponent : 0;
        break;
      case SPECIAL_PAIR: r = plaitk_special_of_pair(s->function, x, y, s->derivative); break;
      default: r = plaitk_special_of(s->function, x);
    }
    if (wide) {
      ((double *)s->out)[i] = r;
    } else {
      ((float *)s->out)[i] = (float)r;
    }
  }
}

void plaitk_special_run(plait_pool *pool, const struct plaitk_special *s) {
  plait_parallel(pool, (s->n + CHUNK_ELEMENTS - 1) / CHUNK_ELEMENTS, run_chunk, (void *)s);
}
