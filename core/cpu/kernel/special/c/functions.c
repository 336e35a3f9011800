// Functions of one argument that the language of elementwise operations cannot express. All are computed in double.
#include <float.h>
#include <math.h>

#include "../../../include/plait_vmath.h"
#include "special.h"

#define SERIES_UP_TO 30.0  // from here on, the asymptotic series of I is as accurate
#define PI 3.141592653589793
#define EULER 0.57721566490153286

// exp(-|x|) times the modified Bessel function of the first kind, of order 0 or 1.
static double scaled_i(int order, double x) {
  double v = fabs(x), sign = order == 1 && x < 0 ? -1 : 1;
  if (isnan(x)) return x;
  if (isinf(x)) return sign * 0.0;
  double term, sum;
  if (v <= SERIES_UP_TO) {
    double q = v * v / 4;
    sum = term = order == 1 ? v / 2 : 1;
    for (int k = 1; term > 1e-18 * sum; k++) {
      term *= q / ((double)k * (k + order));
      sum += term;
    }
    return sign * sum * exp(-v);
  }
  sum = term = 1;
  for (int k = 1; k < 40; k++) {
    double odd = 2 * k - 1, next = -term * (4.0 * order * order - odd * odd) / (8.0 * k * v);
    if (fabs(next) >= fabs(term) || fabs(next) < 1e-18) break;
    term = next;
    sum += term;
  }
  return sign * sum / sqrt(2 * PI * v);
}

static double bessel_i(int order, double x) {
  double v = fabs(x);
  if (isnan(x) || isinf(x)) return order == 1 ? x : v;
  double half = exp(v / 2);  // exp(v) may overflow where the result does not
  return scaled_i(order, x) * half * half;
}

// exp(x) times the modified Bessel function of the second kind, of order 0, 1/3 or 1. It is the integral of exp(-x
// (cosh t - 1)) cosh(order t) over t > 0. The trapezoidal rule is accurate to the last digit if the step is below half
// the width of the peak.
static double integral_k(double order, double x) {
  double h = fmin(0.25, 0.7 / sqrt(x)), sum = 0.5;
  for (int k = 1; k < 4000; k++) {
    double t = k * h, s = sinh(t / 2), down = 2 * x * s * s;
    if (down - order * t > 42) break;
    sum += exp(-down) * cosh(order * t);
  }
  return h * sum;
}

// The modified Bessel function of the second kind of order 0 or 1, times exp(x) if scaled.
static double bessel_k(int order, double x, bool scaled) {
  if (isnan(x) || x < 0) return NAN;
  if (x == 0) return INFINITY;
  if (isinf(x)) return 0;
  if (x > 1) {
    double v = integral_k(order, x);
    return scaled ? v : x > 700 ? v * exp(-x / 2) * exp(-x / 2) : v * exp(-x);
  }
  double q = x * x / 4, power = 1, harmonic = 0, lead = log(x / 2) + EULER, sum = 0;
  if (order == 0) {
    for (int k = 0; k < 16; k++) {  // the sum of q^k / k!^2 (H_k - log(x/2) - gamma)
      if (k > 0) {
        power *= q / ((double)k * k);
        harmonic += 1.0 / k;
      }
      sum += power * (harmonic - lead);
    }
  } else {
    for (int k = 0; k < 16; k++) {  // 1/x + x/2 times the sum of q^k / (k! (k+1)!) (log(x/2) + gamma - (H_k + H_k+1)/2)
      if (k > 0) {
        power *= q / ((double)k * (k + 1));
        harmonic += 1.0 / k;
      }
      sum += power * (lead - harmonic - 0.5 / (k + 1));
    }
    sum = 1 / x + x / 2 * sum;
  }
  return scaled ? sum * exp(x) : sum;
}

// exp(x^2) erfc(x).
static double scaled_erfc(double x) {
  if (isnan(x)) return x;
  if (x > 25) {
    double q = 1 / (2 * x * x), term = 1, sum = 1;
    for (int k = 1; k < 8; k++) {
      term *= -q * (2 * k - 1);
      sum += term;
    }
    return sum / (x * 1.7724538509055160273);
  }
  if (x < -26.7) return INFINITY;
  double square = x * x, rest = fma(x, x, -square);
  return exp(square) * erfc(x) * (1 + rest);
}

static double log_ndtr(double x) {
  double t = x * 0.70710678118654752440;
  if (x < -1) return log(scaled_erfc(-t) / 2) - t * t;
  return log1p(-erfc(t) / 2);
}

// The inverse of the normal distribution function: by the inverse error function near the median, elsewhere by Newton's
// method on the logarithm of the distribution function.
static double ndtri(double p) {
  if (!(p >= 0 && p <= 1)) return NAN;
  if (p == 0) return -INFINITY;
  if (p == 1) return INFINITY;
  if (p > 0.1 && p < 0.9) return 1.4142135623730950488 * plait_vm_erfinv(2 * (p - 0.5));
  double low = p < 0.5 ? p : 1 - p, target = log(low), x = -sqrt(-2 * target);
  x += log(-x * 2.5066282746310002) / -x;
  for (int i = 0; i < 8; i++) {
    double slope = 0.79788456080286535588 / scaled_erfc(-x * 0.70710678118654752440);
    double step = (log_ndtr(x) - target) / slope;
    x -= step;
    if (fabs(step) <= 1e-9 * fabs(x)) break;  // the next step would change less than the last digit
  }
  return p < 0.5 ? x : -x;
}

// The Airy function Ai.
static double airy_ai(double x) {
  if (isnan(x)) return x;
  if (x > 104) return 0;
  double z = fabs(x), root = sqrt(z), zeta = 2.0 / 3 * z * root;
  if (x > 1) return root / (PI * 1.7320508075688772935) * integral_k(1.0 / 3, zeta) * exp(-zeta);
  if (x > -2) {  // the power series
    double cube = x * x * x, f = 1, g = x, even = 1, odd = x;
    for (int k = 1; k < 24; k++) {
      even *= cube / ((3.0 * k - 1) * (3 * k));
      odd *= cube / ((3.0 * k) * (3 * k + 1));
      f += even;
      g += odd;
    }
    return 0.35502805388781723926 * f - 0.25881940379280679840 * g;
  }
  if (x > -10) {  // the integral of exp(i (t^3/3 + x t)) along a line above the real axis, by the trapezoidal rule
    const double up = 0.4, h = 0.0625;
    double sum = 0;
    for (int k = 0;; k++) {
      double t = k * h, down = t * t * up - up * up * up / 3 + x * up;
      if (down > 42) break;
      sum += (k ? 1 : 0.5) * exp(-down) * cos(t * t * t / 3 - t * up * up + x * t);
    }
    return h * sum / PI;
  }
  // The asymptotic series in 1/zeta.
  double u = 1, even = 1, odd = 0;
  for (int k = 1; k < 30; k++) {
    double next = u * (6.0 * k - 5) * (6.0 * k - 3) * (6.0 * k - 1) / (216.0 * k * (2 * k - 1)) / zeta;
    if (next >= u || next < 1e-18) break;
    u = next;
    double sign = k / 2 % 2 ? -1 : 1;
    if (k % 2) {
      odd += sign * u;
    } else {
      even += sign * u;
    }
  }
  double angle = zeta - PI / 4;
  return (cos(angle) * even + sin(angle) * odd) / (1.7724538509055160273 * sqrt(root));
}

double plaitk_special_of(int32_t function, double x) {
  switch (function) {
    case SPECIAL_I0: return bessel_i(0, x);
    case SPECIAL_I1: return bessel_i(1, x);
    case SPECIAL_I0E: return scaled_i(0, x);
    case SPECIAL_I1E: return scaled_i(1, x);
    case SPECIAL_K0: return bessel_k(0, x, false);
    case SPECIAL_K1: return bessel_k(1, x, false);
    case SPECIAL_K0E: return bessel_k(0, x, true);
    case SPECIAL_K1E: return bessel_k(1, x, true);
    case SPECIAL_J0: return j0(x);
    case SPECIAL_J1: return j1(x);
    case SPECIAL_Y0: return x < 0 ? NAN : y0(x);
    case SPECIAL_Y1: return x < 0 ? NAN : y1(x);
    case SPECIAL_ERFCX: return scaled_erfc(x);
    case SPECIAL_LOG_NDTR: return log_ndtr(x);
    case SPECIAL_NDTRI: return ndtri(x);
    default: return airy_ai(x);
  }
}
