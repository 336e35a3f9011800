// The error function of float64 and its relatives.
#ifndef PLAIT_VMATH_DOUBLE_ERF_H
#define PLAIT_VMATH_DOUBLE_ERF_H

#include "double_log.h"

// erf(x) / x - 1 for z = x^2 and |x| <= 0.6875.
PLAIT_INLINE double plait_vm_erf_near(double z) {
  double v = z * z, p = 0x1.8806b75635c4ep-26, q = -0x1.9040526594e2bp-23;
  p = p * v + 0x1.c0618986bce3fp-20;
  p = p * v + 0x1.f9a83e3a55c74p-14;
  q = q * v - 0x1.f54920a3986fep-17;
  p = p * v + 0x1.565bcd9bf7ff0p-8;
  q = q * v - 0x1.c02dd66f8f9c1p-11;
  p = p * v + 0x1.ce2f21a049005p-4;
  q = q * v - 0x1.b82ce31524dacp-6;
  p = p + z * q;
  p = p * z - 0x1.812746b037a44p-2;
  return p * z + 0x1.06eba8214db69p-3;
}

// 2^r - 1 for |r| <= 1/2.
PLAIT_INLINE double plait_vm_exp2m1_near(double r) {
  double z = r * r, p = 0x1.e6276ed3ce648p-28, q = 0x1.ee6cd15b3b644p-32;
  q = q * z + 0x1.b521fbababd4dp-24;
  p = p * z + 0x1.62bfc078b6ac5p-20;
  q = q * z + 0x1.ffcbfdcc9fa11p-17;
  p = p * z + 0x1.43091311b8999p-13;
  q = q * z + 0x1.5d87fe785e06ep-10;
  p = p * z + 0x1.3b2ab6fb9f2a2p-7;
  q = q * z + 0x1.c6b08d704a223p-5;
  p = p * z + 0x1.ebfbdff82c5aap-3;
  q = q * z + 0x1.62e42fefa39efp-1;
  return z * p + r * q;
}

// erf(x), within 0.85 ulp. Long polynomials here are sums of two chains, which a processor computes side by side.
PLAIT_INLINE double plait_vm_erf(double x) {
  double a = plait_vm_at_most(plait_vm_abs(x), 5.95), u = a - 0x1.a0789p-1, v = u * u;
  // The binary logarithm of 4 erfc(a), nearly a parabola.
  double p = -0x1.2e97bfc0aeb92p-42, q = 0x1.4c7aea0859c9bp-37;
  p = p * v - 0x1.52f6779c34374p-33;
  p = p * v - 0x1.7494235cb94abp-27;
  q = q * v + 0x1.ab16f539fc52ap-30;
  p = p * v - 0x1.bdebe25654781p-23;
  q = q * v + 0x1.da9b311630ceap-25;
  p = p * v - 0x1.470eb995a89c2p-21;
  q = q * v + 0x1.21b26f9ad8a66p-21;
  p = p * v + 0x1.41bf0fbbf4d72p-16;
  q = q * v - 0x1.59db4e42081a9p-19;
  p = p * v + 0x1.e656e0298378ep-14;
  q = q * v - 0x1.18c41d99a6e8ap-14;
  p = p * v - 0x1.a275340690483p-9;
  q = q * v + 0x1.02675855851fdp-12;
  p = p * v - 0x1.2616f4223089ep-4;
  q = q * v + 0x1.1b832d5139fe3p-6;
  p = p * v - 0x1.ae141d361fdcap+1;
  q = q * v - 0x1.2df8477c118dbp+0;
  double l = u * (p + u * q) + 0x1.9e7396ea79a28p-24;
  double t = l + (PLAIT_VM_ROUNDER + 1021.0), s = plait_vm_from_bits(plait_vm_bits(t) << 52);
  double far = (1.0 - s) - s * plait_vm_exp2m1_near(l - (t - (PLAIT_VM_ROUNDER + 1021.0)));
  return plait_vm_copysign(plait_vm_pick(a < 0.6875, a + a * plait_vm_erf_near(a * a), far), x);
}

// erfc(x), within 1 ulp: from 5/8 on it is (1 + p) exp(-a^2) / (27/32 + 27/16 a), where p is smooth in t = (a - 4) / (a + 4).
PLAIT_INLINE double plait_vm_erfc(double x) {
  double a = plait_vm_at_most(plait_vm_abs(x), 27.3), head = plait_vm_near_multiple20(a), rest = a - head;
  double sum = a + 4.0, divisor = 0.84375 + 1.6875 * a, inverse = 1.0 / (sum * divisor);
  double t = 2.0 * a * (divisor * inverse) - 1.0;
  double v = t * t, p = -0x1.6a66b28839683p-27, q = -0x1.0e4d1ac1b91aep-27;
  q = q * v + 0x1.72f42eb8e55ccp-24;
  p = p * v + 0x1.eaf25a291a775p-25;
  q = q * v - 0x1.72c0f4c7a19b7p-21;
  p = p * v + 0x1.0eaff77d82167p-22;
  q = q * v + 0x1.4314bc69db5c8p-18;
  p = p * v - 0x1.3dc6c8ed87c04p-17;
  q = q * v - 0x1.595e9cbdbc091p-16;
  p = p * v + 0x1.0a85a1aa2fd2cp-13;
  q = q * v - 0x1.60946a18e4d5fp-13;
  p = p * v - 0x1.4f36f73398559p-11;
  q = q * v + 0x1.163f70c9c9fd9p-8;
  p = p * v - 0x1.bfd5bf5613ce3p-7;
  q = q * v + 0x1.00e6e0c78963fp-5;
  p = p * v - 0x1.ca79b99d4caeep-5;
  q = q * v + 0x1.43f0d041e268cp-4;
  p = p * v - 0x1.5d30e62d4bad1p-4;
  q = q * v + 0x1.d6afd4ae66ad1p-5;
  p = p * v + 0x1.a937747ee5be9p-7;
  p = p + t * q;
  p = p * t - 0x1.e287d413ed24ep-4;
  p = p * t + 0x1.4a7656aadbc60p-5;
  // exp(-a^2) is e + f times 2^n.
  double n, e, f;
  plait_vm_sum r = plait_vm_exp_split((plait_vm_sum){-(head * head), -(rest * (a + head))}, PLAIT_VM_ROUNDER + 1087.0, &n);
  f = plait_vm_exp_rest(r, &e);
  double power = e + f;
  // The first bits of the quotient, and what they leave of the dividend over the divisor.
  inverse *= sum;
  double y = plait_vm_head((power + p * power) * inverse, 20);
  y += (((e - y * (0.84375 + 1.6875 * head)) + p * power) + (f - y * (1.6875 * rest))) * inverse;
  double scale = plait_vm_from_bits((plait_vm_bits(n) << 52) | (plait_vm_bits(x) & (uint64_t)INT64_MIN));  // by 2^64 too large
  double far = (plait_vm_pick(x < 0.0, 0x1p65, 0.0) + y * scale) * 0x1p-64;
  plait_vm_sum near = plait_vm_two_sum(1.0, -x);
  return plait_vm_pick(a < 0.625, near.high + (near.low - x * plait_vm_erf_near(x * x)), far);
}

// (erfinv(x) / x - c) / w for w = -log(1 - x^2) <= 5, where c is 0x1.c5bf89p-1 + 0x1.b4ef6aa79c3b0p-29.
PLAIT_INLINE double plait_vm_erfinv_middle(double w) {
  double v = w * w, p = 0x1.ee38545adf228p-63, q = -0x1.37b0f0fd0d483p-57;
  p = p * v + 0x1.13bd36d8e1520p-53;
  p = p * v - 0x1.663ccf6f1da3cp-46;
  q = q * v - 0x1.c8123dfea15ecp-54;
  p = p * v - 0x1.4bec7c4a25b7ap-39;
  q = q * v + 0x1.5be1a53ac38a8p-42;
  p = p * v - 0x1.48c8601c59f67p-36;
  q = q * v + 0x1.53b36e1114718p-37;
  p = p * v - 0x1.75804d0ace096p-31;
  q = q * v + 0x1.13130783f640ap-34;
  p = p * v + 0x1.82c721aba969dp-26;
  q = q * v + 0x1.108ba177267dcp-30;
  p = p * v - 0x1.0fd9fbfa95a01p-20;
  q = q * v - 0x1.3e30e74d9fad8p-25;
  p = p * v + 0x1.87013e2f81cfap-15;
  q = q * v + 0x1.0f213384fcfbbp-19;
  p = p * v - 0x1.3211026005522p-9;
  q = q * v - 0x1.0c86b76f98972p-13;
  p = p + w * q;
  p = p * w + 0x1.7a72e72c28042p-7;
  p = p * w + 0x1.db29fb2fee5aap-3;
  return p;
}

// (erfcinv(exp(-s^2)) - c) / u for u = s - 4 and 5.69 <= s^2 <= 36.9, where c is 0x1.e02c8bp+1 + 0x1.19e10ac5e123ap-31.
PLAIT_INLINE double plait_vm_erfcinv_tail(double u) {
  double v = u * u, p = 0x1.2521d1b43f0d8p-49, q = -0x1.947ff865e3987p-52;
  q = q * v + 0x1.09fb4584cd8e8p-48;
  p = p * v - 0x1.2800362d1b3ecp-44;
  q = q * v + 0x1.6444fe8930408p-42;
  p = p * v - 0x1.8adf75dfd8d1ep-40;
  q = q * v + 0x1.f1ce664ef3a81p-38;
  p = p * v - 0x1.307babb6d15c3p-35;
  q = q * v + 0x1.5d29216889438p-33;
  p = p * v - 0x1.826b891d00887p-31;
  q = q * v + 0x1.a02cd2995cb63p-29;
  p = p * v - 0x1.b2f0a34a07ca7p-27;
  q = q * v + 0x1.b79a263455913p-25;
  p = p * v - 0x1.ab36c9414ca66p-23;
  q = q * v + 0x1.8a81af0b7baa0p-21;
  p = p * v - 0x1.51c655044dd7cp-19;
  q = q * v + 0x1.f92c9c1d87e46p-18;
  p = p * v - 0x1.0a31f4d24722dp-16;
  q = q * v - 0x1.d7647d0f6ccc4p-17;
  p = p * v + 0x1.f4b41ae9a592cp-12;
  p = p + u * q;
  p = p * u - 0x1.1889f5f772db8p-8;
  p = p * u + 0x1.082784f525740p+0;
  return p;
}

// The inverse of erfc for c = exp(-w) and such a sum w, nearly a straight line in the square root s of w.
PLAIT_INLINE plait_vm_sum plait_vm_erfcinv_sum(plait_vm_sum w) {
  double s = sqrt(w.high), head = plait_vm_head(s, 25), u = s - 4.0;
  plait_vm_sum y = plait_vm_two_sum(0x1.e02c8bp+1, u * plait_vm_erfcinv_tail(u));
  // What s lacks is the rest over 2 s, of which a few bits are enough.
  double rest = ((w.high - head * head) - (s - head) * (s + head)) + w.low;
  return (plait_vm_sum){y.high, y.low + (rest * ((0.008 * s - 0.100) * s + 0.402) + 0x1.19e10ac5e123ap-31)};
}

// The product of two sums, of which the first is not subnormal.
PLAIT_INLINE plait_vm_sum plait_vm_multiply_sums(plait_vm_sum x, plait_vm_sum y) {
  double a = plait_vm_head(x.high, 25), b = plait_vm_head(y.high, 25);
  return plait_vm_two_sum(a * b, (a * (y.high - b) + (x.high - a) * y.high) + (x.high * y.low + x.low * y.high));
}

// erfinv(a) over a for 0 <= a <= 0x1.fe46p-1, and erfinv(a) from there on, where *far is set. c is 1 - a.
PLAIT_INLINE plait_vm_sum plait_vm_erfinv_sum(double a, double c, bool *far) {
  *far = a > 0x1.fe46p-1;
  // 1 - a^2 is a sum up to 1/2, and from there on a product. In the tail, it is 1 - a.
  double product = c * plait_vm_pick(*far, 1.0, 1.0 + a);
  plait_vm_sum q = plait_vm_pick_sum(a < 0.5, plait_vm_two_sum(1.0, -(a * a)), (plait_vm_sum){product, 0.0});
  double e, f = plait_vm_near_log_split(q.high, &e);
  plait_vm_sum l = plait_vm_log_of((plait_vm_sum){f, q.low}, e), w = plait_vm_two_sum(-l.high, -l.low);
  plait_vm_sum middle = plait_vm_two_sum(0x1.c5bf89p-1, w.high * plait_vm_erfinv_middle(w.high));
  middle.low += 0x1.b4ef6aa79c3b0p-29;
  return plait_vm_pick_sum(*far, plait_vm_erfcinv_sum(w), middle);
}

// erfinv(x), within 2 ulp; NaN outside [-1, 1].
PLAIT_INLINE double plait_vm_erfinv(double x) {
  double a = plait_vm_abs(x), c = 1.0 - a;
  bool far = a > 0x1.fe46p-1;
  // 1 - a^2; in the tail, 1 - a.
  c = plait_vm_pick(a < 0.5, 1.0 - a * a, c + c * plait_vm_pick(far, 0.0, a));
  // A logarithm of which only the absolute error matters.
  double e, f = plait_vm_near_log_split(c, &e), s = f / (2.0 + f), z = s * s;
  plait_vm_sum w = plait_vm_two_sum(-e * 0x1.62e42fefa3800p-1, s * (-2.0 - z * plait_vm_log_tail(z)) - e * 0x1.ef35793c76730p-45);
  plait_vm_sum y = plait_vm_two_sum(0x1.c5bf89p-1, w.high * plait_vm_erfinv_middle(w.high) + (0.2 * w.low + 0x1.b4ef6aa79c3b0p-29));
  double near = a * y.high + a * y.low;
  double root = sqrt(w.high), rest = (w.high - root * root) + w.low, u = root - 4.0;
  double r = 0x1.e02c8bp+1 + (u * plait_vm_erfcinv_tail(u) + (rest * ((0.008 * root - 0.100) * root + 0.402) + 0x1.19e10ac5e123ap-31));
  r = plait_vm_pick(far, r, near);
  r = plait_vm_pick(a < 1.0, r, plait_vm_pick(a == 1.0, PLAIT_VM_INF, PLAIT_VM_NAN));
  return plait_vm_copysign(r, x);
}

#define PLAIT_VM_ROOT2 ((plait_vm_sum){0x1.6a09e667f3bcdp+0, -0x1.bdd3413b26456p-54})

// The inverse of the normal distribution function for p >= 2^-54, within 2 ulp: erfinv(2 p - 1) times the root of 2.
PLAIT_INLINE double plait_vm_near_ndtri(double p) {
  bool far, low = p < 0.5;
  double c = 2.0 * plait_vm_pick(low, p, 1.0 - p);
  plait_vm_sum a = plait_vm_two_sum(1.0, -c), y = plait_vm_erfinv_sum(a.high, c, &far);
  y = plait_vm_multiply_sums(plait_vm_pick_sum(far, (plait_vm_sum){1.0, 0.0}, a), y);
  double r = plait_vm_multiply_sums(y, PLAIT_VM_ROOT2).high;
  r = plait_vm_pick(p == 1.0, PLAIT_VM_INF, plait_vm_pick(p < 1.0, r, PLAIT_VM_NAN));
  return plait_vm_pick(low, -r, r);
}

// The same for p < 2^-54: nearly the exponential of log(-log(2 p)) / 2.
PLAIT_INLINE double plait_vm_far_ndtri(double p) {
  double e, f = plait_vm_log_split(plait_vm_limited(2.0 * p, 0x1p-1073, 0x1p-53), &e);
  plait_vm_sum l = plait_vm_log_of((plait_vm_sum){f, 0.0}, e), w = plait_vm_two_sum(-l.high, -l.low);
  f = plait_vm_near_log_split(w.high, &e);
  l = plait_vm_log_of((plait_vm_sum){f, 0.0}, e);
  plait_vm_sum v = plait_vm_two_sum(l.high, -5.0);
  v = plait_vm_two_sum(v.high, v.low + l.low);
  double u = 0.5 * v.high, rest = 0.5 * (v.low + w.low / w.high);  // of the logarithm, so a part of the result
  double q = -0x1.f755fb8b37b6ep-32;
  q = q * u + 0x1.03e7ae8ea8b76p-30;
  q = q * u - 0x1.4acb3a98824f0p-30;
  q = q * u + 0x1.885e43d8d575bp-30;
  q = q * u + 0x1.c4490cc637a94p-27;
  q = q * u - 0x1.d938947c30dbbp-25;
  q = q * u + 0x1.47588aa7cb5c5p-21;
  q = q * u + 0x1.57bfd28b28bd7p-19;
  q = q * u + 0x1.23eb829aea237p-15;
  q = q * u + 0x1.3e72d4315107cp-12;
  q = q * u + 0x1.399689388e3eep-9;
  q = q * u + 0x1.178d899a6a337p-6;
  q = q * u + 0x1.9d7fecb37f0cep-4;
  q = q * u + 0x1.04916f1d34e12p-1;
  q = q * u + 0x1.0407e35721b69p+1;
  q = q * u + 0x1.84602ec71752ap+2;
  q = q * u + 0x1.889678f8b5d02p+3;
  plait_vm_sum y = plait_vm_two_sum(0x1.81cafbep+3, u * q);
  y.low += y.high * rest - 0x1.2d6a566056e08p-28;
  double r = -plait_vm_multiply_sums(plait_vm_two_sum(y.high, y.low), PLAIT_VM_ROOT2).high;
  return plait_vm_pick(p > 0.0, r, plait_vm_pick(p == 0.0, -PLAIT_VM_INF, PLAIT_VM_NAN));
}

#endif
