
// The library in programs that compute in float64: the functions of CUDA, and those that it lacks as the CPU has them.
namespace plait {

static f64 plait_inf() { return __longlong_as_double(0x7ff0000000000000ll); }
static f64 plait_nan() { return __longlong_as_double(0x7ff8000000000000ll); }
static bool plait_isnan_f64(f64 x) { return x != x; }
static bool plait_isinf_f64(f64 x) { return ::fabs(x) == plait_inf(); }
static bool plait_unbounded(f64 x) { return !(::fabs(x) < plait_inf()); }
static f64 plait_largest() { return __longlong_as_double(0x7fefffffffffffffll); }
static u32 plait_magnitude(f64 x) { return bitcast<u32>(::fabsf(f32(x))); }
static f64 plait_nextafter_f64(f64 x, f64 y) { return ::nextafter(x, y); }
static i32 plait_exponent_f64(f64 x) {
  int exponent = 0;
  if (!plait_unbounded(x)) ::frexp(x, &exponent);
  return exponent;
}
static f64 plait_mantissa_f64(f64 x, i32) {
  int exponent;
  return plait_unbounded(x) ? x : ::frexp(x, &exponent);
}
static vec2<u32> plait_key_f64(f64 x) {
  if (x != x) return vec2<u32>(0xffffffffu, 0xffffffffu);
  const long long b = __double_as_longlong(x == 0 ? 0.0 : x);
  const unsigned long long key = b ^ (b < 0 ? -1 : -0x7fffffffffffffffll - 1);
  return vec2<u32>(unsigned(key), unsigned(key >> 32));
}

// Uniform in [0, 1): the upper 53 bits of two words.
static f64 plait_uniform_wide(u32 high, u32 low) {
  return f64(((unsigned long long)high.v << 32 | low.v) >> 11) * 0x1p-53;
}

static f64 plait_sign_f64(f64 x) { return (x > 0 ? 1.0 : 0.0) - (x < 0 ? 1.0 : 0.0); }
static f64 plait_min_f64(f64 a, f64 b) { return a < b || a != a ? a : b; }
static f64 plait_max_f64(f64 a, f64 b) { return a > b || a != a ? a : b; }
static f64 plait_copysign_f64(f64 a, f64 b) { return ::copysign(a, b); }
static f64 plait_rsqrt_f64(f64 x) { return 1.0 / ::sqrt(x); }
static f64 plait_hypot_f64(f64 x, f64 y) { return ::hypot(x, y); }
static f64 plait_fmod_f64(f64 x, f64 y) { return ::fmod(x, y); }
static f64 plait_remainder_f64(f64 x, f64 y) {
  const f64 m = ::fmod(x, y);
  return m != 0.0 && (m < 0.0) != (y < 0.0) ? m + y : m;
}
static f64 plait_floor_divide_f64(f64 x, f64 y) {
  if (y == 0.0) return x / y;
  const f64 m = ::fmod(x, y);
  const f64 q = (x - m) / y - (m != 0.0 && (m < 0.0) != (y < 0.0) ? 1.0 : 0.0);
  if (q == 0.0) return ::copysign(0.0, x / y);
  const f64 whole = ::floor(q);
  return whole + (q - whole > 0.5 ? 1.0 : 0.0);
}

static f64 plait_exp_f64(f64 x) { return ::exp(x); }
static f64 plait_exp_share(f64 x) { return ::exp(x); }
static f64 plait_exp2_f64(f64 x) { return ::exp2(x); }
static f64 plait_expm1_f64(f64 x) { return ::expm1(x); }
static f64 plait_log_f64(f64 x) { return ::log(x); }
static f64 plait_log2_f64(f64 x) { return ::log2(x); }
static f64 plait_log10_f64(f64 x) { return ::log10(x); }
static f64 plait_log1p_f64(f64 x) { return ::log1p(x); }
static f64 plait_pow_f64(f64 x, f64 y) { return ::pow(x, y); }
static f64 plait_sigmoid_f64(f64 x) { return 1.0 / (1.0 + ::exp(-x)); }
static f64 plait_sin_f64(f64 x) { return ::sin(x); }
static f64 plait_cos_f64(f64 x) { return ::cos(x); }
static f64 plait_tan_f64(f64 x) { return ::tan(x); }
static f64 plait_asin_f64(f64 x) { return ::asin(x); }
static f64 plait_acos_f64(f64 x) { return ::acos(x); }
static f64 plait_atan_f64(f64 x) { return ::atan(x); }
static f64 plait_atan2_f64(f64 y, f64 x) { return ::atan2(y, x); }
static f64 plait_sinh_f64(f64 x) { return ::sinh(x); }
static f64 plait_cosh_f64(f64 x) { return ::cosh(x); }
static f64 plait_tanh_f64(f64 x) { return ::tanh(x); }
static f64 plait_asinh_f64(f64 x) { return ::asinh(x); }
static f64 plait_acosh_f64(f64 x) { return ::acosh(x); }
static f64 plait_atanh_f64(f64 x) { return ::atanh(x); }
static f64 plait_erf_f64(f64 x) { return ::erf(x); }
static f64 plait_erfc_f64(f64 x) { return ::erfc(x); }
static f64 plait_normal_cdf_f64(f64 x) { return 0.5 * (1 + ::erf(x * 0.70710678118654752440)); }
static f64 plait_erfinv_f64(f64 x) { return ::erfinv(x); }
static f64 plait_lgamma_f64(f64 x) { return ::lgamma(x); }

// The derivative of lgamma: the recurrence up to 12, then the asymptotic series. Negative arguments are reflected.
static f64 plait_digamma_f64(f64 x) {
  if (x == 0.0) return -::copysign(plait_inf(), x);
  f64 shift = 0.0;
  if (x < 0.0) {
    const f64 part = x - ::rint(x);
    if (part == 0.0 || x == -plait_inf()) return plait_nan();
    shift = -0x1.921fb54442d18p+1 / ::tan(0x1.921fb54442d18p+1 * part);
    x = 1.0 - x;
  }
  for (; x < 12.0; x += 1.0) shift -= 1.0 / x;
  const f64 s = 1.0 / x, t = s * s;
  f64 series = 691.0 / 32760.0 - t * (1.0 / 12.0);
  series = 1.0 / 132.0 - t * series;
  series = 1.0 / 240.0 - t * series;
  series = 1.0 / 252.0 - t * series;
  series = 1.0 / 120.0 - t * series;
  series = 1.0 / 12.0 - t * series;
  return shift + (::log(x) - 0.5 * s - t * series);
}

// The Hurwitz zeta function for q >= 0, the sum of (k + q)^-s over k >= 0, by the Euler-Maclaurin formula.
static f64 plait_zeta_sum(f64 s, f64 q) {
  const f64 bernoulli[] = {
      1.0 / 12, -1.0 / 720, 1.0 / 30240, -1.0 / 1209600, 1.0 / 47900160,
      -691.0 / 1307674368000, 1.0 / 74724249600, -3617.0 / 10670622842880000,
  };
  f64 sum = 0;
  if (q == 0) return plait_inf();
  for (; q < 10; q++) sum += ::pow(q, -s);
  f64 power = ::pow(q, -s), term = power * s / q;
  sum += power * q / (s - 1) + power / 2;
  for (int j = 0; j < 8; j++) {
    sum += bernoulli[j] * term;
    term *= (s + 2 * j + 1) * (s + 2 * j + 2) / (q * q);
  }
  return sum;
}
static f64 plait_zeta_f64(f64 s, f64 q) {
  if (s == 1) return plait_inf();
  if (!(s > 1) || q != q) return plait_nan();
  if (q > 0) return plait_zeta_sum(s, q);
  if (q == ::floor(q)) return plait_inf();
  if (s != ::floor(s)) return plait_nan();
  const f64 f = q - ::floor(q);
  return plait_zeta_sum(s, f) + ::pow(-1.0, s) * (plait_zeta_sum(s, 1 - f) - plait_zeta_sum(s, 1 - q));
}

// Conversions. A number beyond the range of 64-bit integers, and NaN, become the least.
static f64 plait_f64_of_i64(vec2<u32> v) { return (f64)((long long)v.y.v << 32 | v.x.v); }
static vec2<u32> plait_i64_of_f64(f64 v) {
  const bool within = v > -0x1p63 && v < 0x1p63;
  const long long n = within ? (long long)v : -0x7fffffffffffffffll - 1;
  return vec2<u32>(unsigned(n), unsigned(n >> 32));
}

// exp(-|x|) times the modified Bessel function of the first kind, of order 0 or 1.
static f64 plait_scaled_i(f64 order, f64 x) {
  const f64 v = ::fabs(x), sign = order == 1 && x < 0 ? -1 : 1;
  if (x != x) return x;
  if (v == plait_inf()) return sign * 0.0;
  f64 term, sum;
  if (v <= 30.0) {
    const f64 q = v * v / 4;
    sum = term = order == 1 ? v / 2 : 1;
    for (int k = 1; term > 1e-18 * sum; k++) {
      term *= q / (k * (k + order));
      sum += term;
    }
    return sign * sum * ::exp(-v);
  }
  sum = term = 1;
  for (int k = 1; k < 40; k++) {
    const f64 odd = 2 * k - 1, next = -term * (4.0 * order * order - odd * odd) / (8.0 * k * v);
    if (::fabs(next) >= ::fabs(term) || ::fabs(next) < 1e-18) break;
    term = next;
    sum += term;
  }
  return sign * sum / ::sqrt(0x1.921fb54442d18p+2 * v);
}
static f64 plait_bessel_i(f64 order, f64 x) {
  const f64 v = ::fabs(x);
  if (plait_unbounded(x)) return order == 1 ? x : v;
  const f64 half = ::exp(v / 2);  // exp(v) may overflow where the result does not
  return plait_scaled_i(order, x) * half * half;
}

// exp(x) times the modified Bessel function of the second kind, of order 0, 1/3 or 1. It is the integral of exp(-x
// (cosh t - 1)) cosh(order t) over t > 0, by the trapezoidal rule.
static f64 plait_integral_k(f64 order, f64 x) {
  const f64 h = ::fmin(0.25, 0.7 / ::sqrt(x));
  f64 sum = 0.5;
  for (int k = 1; k < 4000; k++) {
    const f64 t = k * h, s = ::sinh(t / 2), down = 2 * x * s * s;
    if (down - order * t > 42) break;
    sum += ::exp(-down) * ::cosh(order * t);
  }
  return h * sum;
}
static f64 plait_bessel_k(f64 order, f64 x, bool scaled) {
  if (x != x || x < 0) return plait_nan();
  if (x == 0) return plait_inf();
  if (x == plait_inf()) return 0;
  if (x > 1) {
    const f64 v = plait_integral_k(order, x);
    return scaled ? v : x > 700 ? v * ::exp(-x / 2) * ::exp(-x / 2) : v * ::exp(-x);
  }
  const f64 q = x * x / 4, lead = ::log(x / 2) + 0.57721566490153286;
  f64 power = 1, harmonic = 0, sum = 0;
  for (int k = 0; k < 16; k++) {
    if (k > 0) {
      power *= q / (k * (k + order));
      harmonic += 1.0 / k;
    }
    sum += order == 0 ? power * (harmonic - lead) : power * (lead - harmonic - 0.5 / (k + 1));
  }
  if (order == 1) sum = 1 / x + x / 2 * sum;
  return scaled ? sum * ::exp(x) : sum;
}
static f64 plait_bessel_j(i32 order, f64 x) { return order.v == 0 ? ::j0(x) : ::j1(x); }
static f64 plait_bessel_y(i32 order, f64 x) {
  if (x < 0) return plait_nan();
  return order.v == 0 ? ::y0(x) : ::y1(x);
}

// exp(x^2) erfc(x).
static f64 plait_scaled_erfc(f64 x) { return ::erfcx(x); }
static f64 plait_log_ndtr(f64 x) {
  const f64 t = x * 0.70710678118654752440;
  if (x < -1) return ::log(::erfcx(-t) / 2) - t * t;
  return ::log1p(-::erfc(t) / 2);
}

// The inverse of the normal distribution function: by the inverse error function near the median, elsewhere by Newton's
// method on the logarithm of the distribution function.
static f64 plait_ndtri(f64 p) {
  if (!(p >= 0 && p <= 1)) return plait_nan();
  if (p == 0) return -plait_inf();
  if (p == 1) return plait_inf();
  if (p > 0.1 && p < 0.9) return 1.4142135623730950488 * ::erfinv(2 * (p - 0.5));
  const f64 low = p < 0.5 ? p : 1 - p, aim = ::log(low);
  f64 x = -::sqrt(-2 * aim);
  x += ::log(-x * 2.5066282746310002) / -x;
  for (int i = 0; i < 8; i++) {
    const f64 slope = 0.79788456080286535588 / ::erfcx(-x * 0.70710678118654752440);
    const f64 step = (plait_log_ndtr(x) - aim) / slope;
    x -= step;
    if (::fabs(step) <= 1e-9 * ::fabs(x)) break;  // the next step would change less than the last digit
  }
  return p < 0.5 ? x : -x;
}

// The Airy function Ai.
static f64 plait_airy_ai(f64 x) {
  if (x != x) return x;
  if (x > 104) return 0;
  const f64 z = ::fabs(x), root = ::sqrt(z), zeta = 2.0 / 3 * z * root, pi = 0x1.921fb54442d18p+1;
  if (x > 1) return root / (pi * 1.7320508075688772935) * plait_integral_k(1.0 / 3, zeta) * ::exp(-zeta);
  if (x > -2) {  // the power series
    const f64 cube = x * x * x;
    f64 f = 1, g = x, even = 1, odd = x;
    for (int k = 1; k < 24; k++) {
      even *= cube / ((3.0 * k - 1) * (3 * k));
      odd *= cube / ((3.0 * k) * (3 * k + 1));
      f += even;
      g += odd;
    }
    return 0.35502805388781723926 * f - 0.25881940379280679840 * g;
  }
  if (x > -10) {  // the integral of exp(i (t^3/3 + x t)) along a line above the real axis, by the trapezoidal rule
    const f64 up = 0.4, h = 0.0625;
    f64 sum = 0;
    for (int k = 0;; k++) {
      const f64 t = k * h, down = t * t * up - up * up * up / 3 + x * up;
      if (down > 42) break;
      sum += (k ? 1 : 0.5) * ::exp(-down) * ::cos(t * t * t / 3 - t * up * up + x * t);
    }
    return h * sum / pi;
  }
  f64 u = 1, even = 1, odd = 0;  // the asymptotic series in 1/zeta
  for (int k = 1; k < 30; k++) {
    const f64 next = u * (6.0 * k - 5) * (6.0 * k - 3) * (6.0 * k - 1) / (216.0 * k * (2 * k - 1)) / zeta;
    if (next >= u || next < 1e-18) break;
    u = next;
    const f64 sign = k / 2 % 2 ? -1 : 1;
    if (k % 2) {
      odd += sign * u;
    } else {
      even += sign * u;
    }
  }
  const f64 angle = zeta - pi / 4;
  return (::cos(angle) * even + ::sin(angle) * odd) / (1.7724538509055160273 * ::sqrt(root));
}

// log(1+u) - u.
static f64 plait_log1p_less(f64 u) {
  if (::fabs(u) > 0.4) return ::log1p(u) - u;
  const f64 r = u / (2 + u), q = r * r;
  f64 power = r * q, sum = 0;
  for (int k = 3; ::fabs(power) > 1e-20 && k < 60; k += 2) {
    sum += power / k;
    power *= q;
  }
  return 2 * sum - u * r;
}

// x^a exp(-x) / gamma(a+1).
static f64 plait_gamma_density(f64 a, f64 x) {
  if (a < 12) return ::exp(a * ::log(x) - x - ::lgamma(a + 1));
  const f64 b = 1 / (a * a);  // Stirling's series
  const f64 rest = (1.0 / 12 - b * (1.0 / 360 - b * (1.0 / 1260 - b * (1.0 / 1680 - b * (1.0 / 1188 - b * 691.0 / 360360))))) / a;
  return ::exp(a * plait_log1p_less((x - a) / a) - rest) / ::sqrt(0x1.921fb54442d18p+2 * a);
}

// The regularised incomplete gamma function, lower or upper.
static f64 plait_gamma_part(f64 a, f64 x, bool upper) {
  const f64 infinity = plait_inf();
  if (a != a || x != x || a < 0 || x < 0 || (a == 0 && x == 0) || (a == infinity && x == infinity)) return plait_nan();
  if (a == 0 || x == infinity) return upper ? 0 : 1;
  if (x == 0 || a == infinity) return upper ? 1 : 0;
  const f64 scale = plait_gamma_density(a, x);
  if (x < a + 1) {
    f64 term = 1, sum = 1;
    for (f64 n = a + 1; term > 1e-17 * sum; n++) {
      term *= x / n;
      sum += term;
    }
    return upper ? 1 - scale * sum : scale * sum;
  }
  f64 b = x + 1 - a, c = 1e300, d = 1 / b, f = d;  // the continued fraction of the upper function, by Lentz's method
  for (int i = 1; i < 100000; i++) {
    const f64 num = -i * (i - a);
    b += 2;
    d = num * d + b;
    c = b + num / c;
    if (::fabs(d) < 1e-300) d = 1e-300;
    if (::fabs(c) < 1e-300) c = 1e-300;
    d = 1 / d;
    f *= c * d;
    if (::fabs(c * d - 1) < 1e-16) break;
  }
  const f64 q = scale * a * f;
  return upper ? q : 1 - q;
}

} // namespace plait
