// Functions of one and two numbers that have no elementwise body.

// exp(-|x|) times the modified Bessel function of the first kind, of order 0 or 1.
fn plait_scaled_i(order: f32, x: f32) -> f32 {
  if (plait_isnan_f32(x)) { return x; }
  let v = abs(x);
  let sign = select(1.0, -1.0, order == 1.0 && x < 0.0);
  if (plait_isinf_f32(x)) { return sign * 0.0; }
  var term = 1.0;
  var sum = 1.0;
  if (v <= 12.0) {
    let q = 0.25 * v * v;
    term = select(1.0, 0.5 * v, order == 1.0);
    sum = term;
    for (var k = 1.0; k < 100.0 && term > 1e-9 * sum; k += 1.0) {
      term = term * q / (k * (k + order));
      sum = sum + term;
    }
    return sign * sum * plait_exp_f32(-v);
  }
  for (var k = 1.0; k < 40.0; k += 1.0) { // the asymptotic series
    let odd = 2.0 * k - 1.0;
    let next = -term * (4.0 * order * order - odd * odd) / (8.0 * k * v);
    if (abs(next) >= abs(term) || abs(next) < 1e-9) { break; }
    term = next;
    sum = sum + term;
  }
  return sign * sum / sqrt(6.28318531 * v);
}
fn plait_bessel_i(order: f32, x: f32) -> f32 {
  let v = abs(x);
  if (plait_unbounded(x)) { return select(v, x, order == 1.0); }
  let half = plait_exp_f32(0.5 * v); // exp(v) may overflow where the result does not
  return plait_scaled_i(order, x) * half * half;
}

// exp(x) times the modified Bessel function of the second kind, of order 0, 1/3 or 1, by the trapezoidal rule for the
// integral of exp(-x (cosh t - 1)) cosh(order t) over t > 0.
fn plait_integral_k(order: f32, x: f32) -> f32 {
  let h = min(0.25, 0.7 / sqrt(x));
  var sum = 0.5;
  for (var k = 1.0; k < 400.0; k += 1.0) {
    let t = k * h;
    let s = plait_sinh_f32(0.5 * t);
    let down = 2.0 * x * s * s;
    if (down - order * t > 20.0) { break; }
    sum = sum + plait_exp_f32(-down) * plait_cosh_f32(order * t);
  }
  return h * sum;
}
// The modified Bessel function of the second kind of order 0 or 1, times exp(x) if scaled.
fn plait_bessel_k(order: f32, x: f32, scaled: bool) -> f32 {
  if (plait_isnan_f32(x) || x < 0.0) { return plait_nan(); }
  if (x == 0.0) { return plait_inf(); }
  if (plait_isinf_f32(x)) { return 0.0; }
  if (x > 1.0) {
    let v = plait_integral_k(order, x);
    if (scaled) { return v; }
    return v * plait_exp_f32(-0.5 * x) * plait_exp_f32(-0.5 * x);
  }
  let q = 0.25 * x * x;
  let lead = plait_log_f32(0.5 * x) + 0.577215665;
  var power = 1.0;
  var harmonic = 0.0;
  var sum = 0.0;
  if (order == 0.0) {
    for (var k = 0.0; k < 8.0; k += 1.0) {
      if (k > 0.0) {
        power = power * q / (k * k);
        harmonic = harmonic + 1.0 / k;
      }
      sum = sum + power * (harmonic - lead);
    }
  } else {
    for (var k = 0.0; k < 8.0; k += 1.0) {
      if (k > 0.0) {
        power = power * q / (k * (k + 1.0));
        harmonic = harmonic + 1.0 / k;
      }
      sum = sum + power * (lead - harmonic - 0.5 / (k + 1.0));
    }
    sum = 1.0 / x + 0.5 * x * sum;
  }
  return select(sum, sum * plait_exp_f32(x), scaled);
}

// The Bessel functions of the first kind, j, and of the second kind, y, of orders 0 and 1, at x > 0.
struct plait_bessel { j: vec2<f32>, y: vec2<f32> }
fn plait_bessel_jy(x: f32) -> plait_bessel {
  var r: plait_bessel;
  if (plait_isinf_f32(x)) { return r; }
  if (x >= 12.0) { // Hankel's asymptotic series
    let s = plait_sin_f32(x);
    let c = plait_cos_f32(x);
    let cosine = (c + s) * 0.707106781;
    let sine = (s - c) * 0.707106781;
    let scale = sqrt(0.636619772 / x);
    for (var order = 0; order < 2; order++) {
      let m = f32(4 * order * order);
      var p = 1.0;
      var q = 0.0;
      var term = 1.0;
      for (var k = 1; k < 30; k++) {
        let odd = f32(2 * k - 1);
        let next = term * (m - odd * odd) / (f32(8 * k) * x);
        if (abs(next) >= abs(term) || abs(next) < 1e-9) { break; }
        term = next;
        let part = select(term, -term, (k & 2) == 2);
        if ((k & 1) == 1) { q = q + part; } else { p = p + part; }
      }
      if (order == 0) {
        r.j.x = scale * (p * cosine - q * sine);
        r.y.x = scale * (p * sine + q * cosine);
      } else {
        r.j.y = scale * (p * sine + q * cosine);
        r.y.y = scale * (q * sine - p * cosine);
      }
    }
    return r;
  }
  var sums = vec2<f32>(0.0, 0.0); // Neumann's series of the second kind's
  if (x < 0.5) {
    let q = 0.25 * x * x;
    let two = 0.5 * q * (1.0 - q / 3.0 * (1.0 - q / 8.0));
    let three = x * q / 12.0 * (1.0 - 0.25 * q);
    r.j = vec2<f32>(1.0 - q * (1.0 - 0.25 * q * (1.0 - q / 9.0)), 0.5 * x * (1.0 - 0.5 * q * (1.0 - q / 6.0 * (1.0 - q / 12.0))));
    sums = vec2<f32>(q * q / 48.0 - two, -1.5 * three);
  } else { // Miller's recurrence down from an order that has no weight left
    var n = 2 * i32(0.625 * x + 8.0);
    var next = 0.0;
    var own = 1e-20;
    var norm = 0.0;
    for (; n > 0; n--) {
      let k = n / 2;
      let part = select(own, -own, (k & 1) == 1);
      if ((n & 1) == 0) {
        norm = norm + 2.0 * own;
        sums.x = sums.x + part / f32(k);
      } else if (k > 0) {
        sums.y = sums.y + part * f32(n) / f32(k * (k + 1));
      }
      let before = f32(2 * n) / x * own - next;
      next = own;
      own = before;
    }
    norm = norm + own;
    r.j = vec2<f32>(own, next) / norm;
    sums = sums / norm;
  }
  let lead = plait_log_f32(0.5 * x) + 0.577215665;
  r.y.x = 0.636619772 * (lead * r.j.x - 2.0 * sums.x);
  r.y.y = 0.636619772 * ((lead - 1.0) * r.j.y - sums.y - r.j.x / x);
  return r;
}
fn plait_bessel_j(order: i32, x: f32) -> f32 {
  if (plait_isnan_f32(x)) { return x; }
  let r = plait_bessel_jy(abs(x)).j;
  if (order == 0) { return r.x; }
  return select(r.y, -r.y, x < 0.0);
}
fn plait_bessel_y(order: i32, x: f32) -> f32 {
  if (plait_isnan_f32(x) || x < 0.0) { return plait_nan(); }
  if (x == 0.0) { return -plait_inf(); }
  let r = plait_bessel_jy(x).y;
  return select(r.x, r.y, order == 1);
}

// exp(x^2) erfc(x).
fn plait_scaled_erfc(x: f32) -> f32 {
  if (plait_isnan_f32(x)) { return x; }
  if (x > 9.0) {
    let q = 0.5 / x / x;
    return (1.0 - q * (1.0 - 3.0 * q * (1.0 - 5.0 * q * (1.0 - 7.0 * q)))) * 0.564189584 / x;
  }
  if (x >= 0.9) { return plait_erfcx(x); }
  if (x < -9.5) { return plait_inf(); }
  let high = plait_upper(x);
  let square = plait_exp_f32(high * high) * plait_exp_f32((x - high) * (x + high));
  if (x > -0.9) { return square * (1.0 - plait_erf_near(x)); }
  return 2.0 * square - plait_erfcx(-x);
}
fn plait_log_ndtr(x: f32) -> f32 {
  let t = x * 0.707106781;
  if (x < -1.0) { return plait_log_f32(0.5 * plait_scaled_erfc(-t)) - t * t; }
  return plait_log1p_f32(-0.5 * plait_erfc_f32(t));
}
// The inverse of the normal distribution function: by the inverse error function in the middle, elsewhere by Newton's
// method on its logarithm.
fn plait_ndtri(p: f32) -> f32 {
  if (!(p >= 0.0 && p <= 1.0)) { return plait_nan(); }
  if (p == 0.0) { return -plait_inf(); }
  if (p == 1.0) { return plait_inf(); }
  if (p > 0.1 && p < 0.9) { return 1.41421356 * plait_erfinv_f32(2.0 * (p - 0.5)); }
  let low = select(1.0 - p, p, p < 0.5);
  let aim = plait_log_f32(low);
  var x = -sqrt(-2.0 * aim);
  x = x - plait_log_f32(-x * 2.50662827) / x;
  for (var i = 0; i < 6; i++) {
    let step = (plait_log_ndtr(x) - aim) * plait_scaled_erfc(-x * 0.707106781) * 1.25331414;
    x = x - step;
    if (abs(step) <= 1e-7 * abs(x)) { break; }
  }
  return select(-x, x, p < 0.5);
}

// The Airy function Ai.
fn plait_airy_ai(x: f32) -> f32 {
  if (plait_isnan_f32(x)) { return x; }
  if (x > 40.0 || x < -1e24) { return 0.0; }
  let root = sqrt(abs(x));
  let zeta = 0.666666667 * abs(x) * root;
  if (x > 1.0) { return root * 0.183776298 * plait_integral_k(0.333333333, zeta) * plait_exp_f32(-zeta); }
  if (x > -2.0) { // the power series
    let cube = x * x * x;
    var f = 1.0;
    var g = x;
    var even = 1.0;
    var odd = x;
    for (var k = 1.0; k < 12.0; k += 1.0) {
      even = even * cube / ((3.0 * k - 1.0) * (3.0 * k));
      odd = odd * cube / ((3.0 * k) * (3.0 * k + 1.0));
      f = f + even;
      g = g + odd;
    }
    return 0.355028054 * f - 0.258819404 * g;
  }
  if (x > -10.0) { // the integral of exp(i (t^3/3 + x t)) along a line above the real axis, by the trapezoidal rule
    let up = 0.4;
    var sum = 0.0;
    for (var k = 0; k < 400; k++) {
      let t = f32(k) * 0.0625;
      let down = t * t * up - up * up * up / 3.0 + x * up;
      if (down > 20.0) { break; }
      sum = sum + select(1.0, 0.5, k == 0) * plait_exp_f32(-down) * plait_cos_f32(t * t * t / 3.0 - t * up * up + x * t);
    }
    return 0.0198943679 * sum;
  }
  var u = 1.0; // the asymptotic series
  var even = 1.0;
  var odd = 0.0;
  for (var k = 1; k < 30; k++) {
    let six = 6.0 * f32(k);
    let next = u * (six - 5.0) * (six - 3.0) * (six - 1.0) / (216.0 * f32(k) * f32(2 * k - 1)) / zeta;
    if (next >= u || next < 1e-9) { break; }
    u = next;
    let part = select(u, -u, (k & 2) == 2);
    if ((k & 1) == 1) { odd = odd + part; } else { even = even + part; }
  }
  let c = plait_cos_f32(zeta);
  let s = plait_sin_f32(zeta);
  return ((c + s) * even + (s - c) * odd) * 0.707106781 / (1.77245385 * sqrt(root));
}

// log(1+u) - u.
fn plait_log1p_less(u: f32) -> f32 {
  if (abs(u) > 0.4) { return plait_log1p_f32(u) - u; }
  let r = u / (2.0 + u);
  let q = r * r;
  var power = r * q;
  var sum = 0.0;
  for (var k = 3; k < 30 && abs(power) > 1e-12; k += 2) {
    sum = sum + power / f32(k);
    power = power * q;
  }
  return 2.0 * sum - u * r;
}
// x^a exp(-x) / gamma(a+1).
fn plait_gamma_density(a: f32, x: f32) -> f32 {
  if (a < 12.0) { return plait_exp_f32(a * plait_log_f32(x) - x - plait_lgamma_f32(a + 1.0)); }
  let b = 1.0 / (a * a);
  let rest = (0.0833333333 - b * (0.00277777778 - b * 7.93650794e-4)) / a; // Stirling's series
  return plait_exp_f32(a * plait_log1p_less((x - a) / a) - rest) / sqrt(6.28318531 * a);
}
// The regularised incomplete gamma function, lower or upper.
fn plait_gamma_part(a: f32, x: f32, upper: bool) -> f32 {
  if (plait_isnan_f32(a) || plait_isnan_f32(x) || a < 0.0 || x < 0.0 || (a == 0.0 && x == 0.0) || (plait_isinf_f32(a) && plait_isinf_f32(x))) {
    return plait_nan();
  }
  if (a == 0.0 || plait_isinf_f32(x)) { return select(1.0, 0.0, upper); }
  if (x == 0.0 || plait_isinf_f32(a)) { return select(0.0, 1.0, upper); }
  let scale = plait_gamma_density(a, x);
  if (x < a + 1.0) {
    var term = 1.0;
    var sum = 1.0;
    for (var n = 1; n < 20000 && term > 1e-9 * sum; n++) {
      term = term * x / (a + f32(n));
      sum = sum + term;
    }
    return select(scale * sum, 1.0 - scale * sum, upper);
  }
  var b = x + 1.0 - a; // the upper part's continued fraction, by Lentz's method
  var c = 1e30;
  var d = 1.0 / b;
  var f = d;
  for (var i = 1; i < 20000; i++) {
    let k = f32(i);
    let num = -k * (k - a);
    b = b + 2.0;
    d = num * d + b;
    c = b + num / c;
    if (abs(d) < 1e-30) { d = 1e-30; }
    if (abs(c) < 1e-30) { c = 1e-30; }
    d = 1.0 / d;
    f = f * c * d;
    if (abs(c * d - 1.0) < 1e-7) { break; }
  }
  let q = scale * a * f;
  return select(1.0 - q, q, upper);
}
