// Functions of two arguments: the incomplete gamma functions and orthogonal polynomials. All are computed in double.
#include <math.h>
#include "../../../include/plait_kernel.h"

#include "special.h"

// log(1+u) - u.
static double log1p_minus_arg(double u) {
  if (fabs(u) > 0.4) return log1p(u) - u;
  double r = u / (2 + u), q = r * r, power = r * q, sum = 0;
  for (int k = 3; fabs(power) > 1e-20 && k < 60; k += 2) {
    sum += power / k;
    power *= q;
  }
  return 2 * sum - u * r;
}

// x^a exp(-x) / gamma(a+1).
static double gamma_density(double a, double x) {
  if (a < 12) return exp(a * log(x) - x - lgamma(a + 1));
  double b = 1 / (a * a);  // Stirling's series
  double rest = (1.0 / 12 - b * (1.0 / 360 - b * (1.0 / 1260 - b * (1.0 / 1680 - b * (1.0 / 1188 - b * 691.0 / 360360))))) / a;
  return exp(a * log1p_minus_arg((x - a) / a) - rest) / sqrt(6.283185307179586 * a);
}

// The regularised incomplete gamma function, lower or upper.
static double incomplete_gamma(double a, double x, bool upper) {
  if (isnan(a) || isnan(x) || a < 0 || x < 0 || (a == 0 && x == 0) || (isinf(a) && isinf(x))) return NAN;
  if (a == 0 || isinf(x)) return upper ? 0 : 1;
  if (x == 0 || isinf(a)) return upper ? 1 : 0;
  double scale = gamma_density(a, x);
  if (x < a + 1) {
    double term = 1, sum = 1;
    for (double n = a + 1; term > 1e-17 * sum; n++) {
      term *= x / n;
      sum += term;
    }
    return upper ? 1 - scale * sum : scale * sum;
  }
  // The continued fraction of the upper function, by Lentz's method.
  double b = x + 1 - a, c = 1e300, d = 1 / b, f = d;
  for (int i = 1; i < 100000; i++) {
    double num = -i * (i - a);
    b += 2;
    d = num * d + b;
    c = b + num / c;
    if (fabs(d) < 1e-300) d = 1e-300;
    if (fabs(c) < 1e-300) c = 1e-300;
    d = 1 / d;
    f *= c * d;
    if (fabs(c * d - 1) < 1e-16) break;
  }
  double q = scale * a * f;
  return upper ? q : 1 - q;
}

// A polynomial of the given degree at x, or its derivative, by the recurrence of its family.
static double polynomial(int32_t family, double x, double degree, bool derivative) {
  if (isnan(x) || !isfinite(degree)) return NAN;
  double inner = 1;  // the derivative of the polynomial's argument with respect to x
  if (family >= SPECIAL_SHIFTED) {
    x = 2 * x - 1;
    inner = 2;
    family -= SPECIAL_SHIFTED - SPECIAL_CHEBYSHEV_T;
  }
  if (degree <= -1) return 0;
  int64_t n = (int64_t)degree;  // the degree is truncated to an integer
  double p = 1, dp = 0, q, dq;  // of degree 0 and 1
  switch (family) {
    case SPECIAL_CHEBYSHEV_T: q = x, dq = 1; break;
    case SPECIAL_CHEBYSHEV_U: q = 2 * x, dq = 2; break;
    case SPECIAL_CHEBYSHEV_V: q = 2 * x - 1, dq = 2; break;
    case SPECIAL_CHEBYSHEV_W: q = 2 * x + 1, dq = 2; break;
    case SPECIAL_HERMITE_H: q = 2 * x, dq = 2; break;
    case SPECIAL_HERMITE_HE: q = x, dq = 1; break;
    case SPECIAL_LAGUERRE: q = 1 - x, dq = -1; break;
    default: q = x, dq = 1;
  }
  if (n == 0) return derivative ? 0 : 1;
  for (int64_t k = 1; k < n; k++) {
    double r, dr, m = (double)k;
    switch (family) {
      case SPECIAL_HERMITE_H: r = 2 * (x * q - m * p), dr = 2 * (q + x * dq - m * dp); break;
      case SPECIAL_HERMITE_HE: r = x * q - m * p, dr = q + x * dq - m * dp; break;
      case SPECIAL_LAGUERRE:
        r = ((2 * m + 1 - x) * q - m * p) / (m + 1);
        dr = ((2 * m + 1 - x) * dq - q - m * dp) / (m + 1);
        break;
      case SPECIAL_LEGENDRE:
        r = ((2 * m + 1) * x * q - m * p) / (m + 1);
        dr = ((2 * m + 1) * (q + x * dq) - m * dp) / (m + 1);
        break;
      default: r = 2 * x * q - p, dr = 2 * (q + x * dq) - dp;
    }
    p = q, q = r, dp = dq, dq = dr;
    if (isnan(q) && isnan(dq)) break;
  }
  return derivative ? dq * inner : q;
}

int64_t plaitk_special_too_long(const struct plaitk_special *s) {
  if (s->op != SPECIAL_PAIR || s->function < SPECIAL_HERMITE_H) return -1;
  for (int64_t i = 0; i < s->n; i++) {
    double degree = s->dtype == PLAIT_F32 ? ((const float *)s->y)[i] : ((const double *)s->y)[i];
    if (degree >= SPECIAL_LONGEST + 1.0 && isfinite(degree)) return i;
  }
  return -1;
}

double plaitk_special_of_pair(int32_t function, double x, double y, bool derivative) {
  switch (function) {
    case SPECIAL_GAMMAINC: return incomplete_gamma(x, y, false);
    case SPECIAL_GAMMAINCC: return incomplete_gamma(x, y, true);
    default: return polynomial(function, x, y, derivative);
  }
}
