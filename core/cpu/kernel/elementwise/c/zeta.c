// The Hurwitz zeta function, the sum of (k + q)^-s over k >= 0, by the Euler-Maclaurin formula.
#include "scalar.h"

// q^-s. The powers of the first three derivatives of digamma take no call.
static double inverse_power(double q, double s) {
  if (s == 2) return 1 / (q * q);
  if (s == 3) return 1 / (q * q * q);
  if (s == 4) return 1 / (q * q * (q * q));
  return pow(q, -s);
}

// For q >= 0.
static double zeta_sum(double s, double q) {
  static const double bernoulli[] = {
      1.0 / 12, -1.0 / 720, 1.0 / 30240, -1.0 / 1209600, 1.0 / 47900160,
      -691.0 / 1307674368000, 1.0 / 74724249600, -3617.0 / 10670622842880000,
  };
  double sum = 0;
  if (q == 0) return INFINITY;
  if (q == INFINITY) return 0;
  for (; q < 10; q++) sum += inverse_power(q, s);
  double power = inverse_power(q, s), term = power * s / q, square = q * q;
  sum += power * q / (s - 1) + power / 2;
  for (int j = 0; j < 8; j++) {
    sum += bernoulli[j] * term;
    term *= (s + 2 * j + 1) * (s + 2 * j + 2) / square;
  }
  return sum;
}

double plaitk_elementwise_zeta(double s, double q) {
  if (s == 1) return INFINITY;
  if (!(s > 1) || q != q) return NAN;
  if (q > 0) return zeta_sum(s, q);
  if (q == floor(q)) return INFINITY;
  if (s != floor(s)) return NAN;
  double f = q - floor(q);
  return zeta_sum(s, f) + pow(-1, s) * (zeta_sum(s, 1 - f) - zeta_sum(s, 1 - q));
}
