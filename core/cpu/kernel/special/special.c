#include "special.h"

#include <math.h>

#include "../../include/plait.h"

#define CHUNK_ELEMENTS 8192

#define SERIES_UP_TO 30.0  // beyond, the asymptotic series is as exact
#define TWO_PI 6.283185307179586

// The modified Bessel function of the first kind, of order 0 or 1.
static double bessel(int order, double x) {
  double v = fabs(x), sign = order == 1 && x < 0 ? -1 : 1;
  if (isnan(x) || isinf(x)) return sign * v;
  double term, sum;
  if (v <= SERIES_UP_TO) {
    double q = v * v / 4;
    sum = term = order == 1 ? v / 2 : 1;
    for (int k = 1; term > 1e-18 * sum; k++) {
      term *= q / ((double)k * (k + order));
      sum += term;
    }
    return sign * sum;
  }
  sum = term = 1;
  for (int k = 1; k < 40; k++) {
    double odd = 2 * k - 1, next = -term * (4.0 * order * order - odd * odd) / (8.0 * k * v);
    if (fabs(next) >= fabs(term) || fabs(next) < 1e-18) break;
    term = next;
    sum += term;
  }
  double half = exp(v / 2);  // exp(v) may overflow where the result does not
  return sign * (half / sqrt(TWO_PI * v) * sum) * half;
}

static void run_chunk(void *arg, int64_t chunk) {
  const struct plaitk_special *s = arg;
  int64_t first = chunk * CHUNK_ELEMENTS, last = first + CHUNK_ELEMENTS < s->n ? first + CHUNK_ELEMENTS : s->n;
  for (int64_t i = first; i < last; i++) {
    bool wide = s->dtype == PLAIT_F64;
    double x = wide ? ((const double *)s->x)[i] : ((const float *)s->x)[i], r;
    int exponent = 0;
    switch (s->op) {
      case SPECIAL_NEXTAFTER:
        r = wide ? nextafter(x, ((const double *)s->y)[i]) : nextafterf((float)x, ((const float *)s->y)[i]);
        break;
      case SPECIAL_FREXP:
        r = frexp(x, &exponent);
        s->exponents[i] = isfinite(x) ? exponent : 0;
        break;
      default: r = bessel(s->order, x);
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
