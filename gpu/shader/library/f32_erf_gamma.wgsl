// Error and gamma functions on float32.

// exp(x^2) erfc(x) for x >= 0.9.
fn plait_erfcx(x: f32) -> f32 {
  let t = (x - 2.0) / (x + 2.0);
  let r = 1.2769784 + t * (-0.0927638188 + t * (-0.166030183 + t * (0.164050847 + t * (-0.054226596 +
      t * (-0.00802135747 + t * (0.0087844981 + t * (0.00113086787 + t * (-0.00161156571 + t * 6.81905076e-5))))))));
  return r / (1.0 + 2.0 * x);
}
fn plait_exp_of_square(x: f32) -> f32 {
  let high = bitcast<f32>(bitcast<u32>(x) & 0xfffff000u);
  return plait_exp_f32(-high * high) * plait_exp_f32(-(x - high) * (x + high));
}
fn plait_erf_near(x: f32) -> f32 {
  let z = x * x;
  return x * (1.1283792 + z * (-0.376126379 + z * (0.112837911 + z * (-0.0268661343 + z * (0.00522378506 +
      z * (-0.000854267040 + z * (0.000119569465 + z * (-1.39116992e-5 + z * 1.05952711e-6))))))));
}
fn plait_erf_f32(x: f32) -> f32 {
  if (plait_isnan_f32(x)) { return x; }
  let a = min(abs(x), 4.5);
  if (a < 1.0) { return plait_erf_near(x); }
  return plait_copysign_f32(1.0 - plait_exp_of_square(a) * plait_erfcx(a), x);
}
fn plait_normal_cdf_f32(x: f32) -> f32 { return 0.5 * (1.0 + plait_erf_f32(x * 0.70710678)); }
fn plait_erfc_f32(x: f32) -> f32 {
  if (plait_isnan_f32(x)) { return x; }
  if (abs(x) < 0.9) { return 1.0 - plait_erf_near(x); }
  let a = min(abs(x), 10.4);
  let r = plait_exp_of_square(a) * plait_erfcx(a);
  return select(r, 2.0 - r, x < 0.0);
}
fn plait_erfinv_f32(x: f32) -> f32 {
  if (!(abs(x) <= 1.0)) { return plait_nan(); }
  if (abs(x) == 1.0) { return plait_copysign_f32(plait_inf(), x); }
  let w = -plait_log1p_f32(-x * x);
  if (w < 5.0) {
    let u = w - 2.5;
    return x * (1.5014094 + u * (0.246640295 + u * (-0.00417738967 + u * (-0.00125274842 + u * (0.000218346872 +
        u * (-4.95974336e-6 + u * (-3.46335628e-6 + u * (4.65428741e-7 + u * (2.32858444e-8 - u * 8.73983108e-9)))))))));
  }
  let v = sqrt(-plait_log_f32(1.0 - abs(x)) - plait_log_f32(1.0 + abs(x))) - 3.0;
  return x * (2.83297706 + v * (1.00167525 + v * (0.00943308137 + v * (-0.00763948308 + v * (0.00577941257 +
      v * (-0.00361478236 + v * (0.00125542843 + v * (4.47783204e-5 - v * 0.000126931074))))))));
}

// sin(pi x) for x of any size.
fn plait_sin_pi(x: f32) -> f32 {
  let n = round(2.0 * x);
  var q: plait_quadrant;
  q.rest = (x - 0.5 * n) * 3.14159265;
  q.number = i32(n - 4.0 * floor(n * 0.25));
  return plait_circular(q, 0);
}
// lgamma(2+u) for u between -1 and 1.
fn plait_lgamma_near(u: f32) -> f32 {
  return u * (1.0 + u) * (0.422784328 + u * (-0.10031727 + u * (0.0329649486 + u * (-0.0123849753 + u * (0.00499948021 + u *
      (-0.00210206164 + u * (0.000910506758 + u * (-0.000425570965 + u * (0.000195798464 + u *
      (-5.24198913e-05 + u * (2.0250367e-05 + u * (-3.87340297e-05 + u * (1.93083906e-05)))))))))))));
}
fn plait_lgamma_right(x: f32) -> f32 {
  if (x < 1.0) { return plait_lgamma_near(x - 1.0) - plait_log_f32(x); }
  if (x <= 3.0) { return plait_lgamma_near(x - 2.0); }
  if (x < 8.0) {
    var y = x;
    var product = 1.0;
    for (var i = 0; i < 6 && y > 3.0; i++) {
      y = y - 1.0;
      product = product * y;
    }
    return plait_lgamma_near(y - 2.0) + plait_log_f32(product);
  }
  let r = 1.0 / x;
  let series = r * (0.083333333 - r * r * (0.0027777778 - r * r * 7.9365079e-4));
  return (x - 0.5) * (plait_log_f32(x) - 1.0) + (0.418938533 + series);
}
fn plait_lgamma_f32(x: f32) -> f32 {
  if (plait_isnan_f32(x)) { return x; }
  if (plait_isinf_f32(x)) { return plait_inf(); }
  if (x > 0.0) { return plait_lgamma_right(x); }
  if (floor(x) == x) { return plait_inf(); }
  return 1.14472989 - plait_log_f32(abs(plait_sin_pi(x))) - plait_lgamma_right(1.0 - x);
}
fn plait_digamma_f32(x: f32) -> f32 {
  if (x == 0.0) { return plait_copysign_f32(plait_inf(), -x); }
  if (plait_isnan_f32(x)) { return x; }
  var y = x;
  var r = 0.0;
  if (x < 0.0) {
    if (floor(x) == x) { return plait_nan(); }
    // pi / tan(pi x), from the part of x behind the point.
    let f = x - round(x);
    r = -3.14159265 / plait_tan_f32(3.14159265 * f);
    y = 1.0 - x;
  }
  var low = 0.0;
  for (var i = 0; i < 8 && y < 8.0; i++) {
    low = low + 1.0 / y;
    y = y + 1.0;
  }
  let z = 1.0 / (y * y);
  let series = z * (0.083333333 - z * (0.0083333333 - z * (0.003968254 - z * 0.0041666667)));
  return r - low + (plait_log_f32(y) - 0.5 / y - series);
}
fn plait_zeta_term(s: f32, q: f32) -> f32 { return plait_pow_f32(q, -s); }
// The Hurwitz zeta function for q > 0, by the Euler-Maclaurin formula.
fn plait_zeta_right(s: f32, at: f32) -> f32 {
  var q = at;
  var sum = 0.0;
  for (var i = 0; i < 10 && q < 10.0; i++) {
    sum = sum + plait_zeta_term(s, q);
    q = q + 1.0;
  }
  let power = plait_zeta_term(s, q);
  sum = sum + (power * q / (s - 1.0) + power * 0.5);
  let z = 1.0 / (q * q);
  var term = power * s / q;
  sum = sum + 0.083333333 * term;
  term = term * (s + 1.0) * (s + 2.0) * z;
  sum = sum - 0.0013888889 * term;
  term = term * (s + 3.0) * (s + 4.0) * z;
  sum = sum + 3.3068783e-5 * term;
  term = term * (s + 5.0) * (s + 6.0) * z;
  return sum - 8.2671958e-7 * term;
}
fn plait_zeta_f32(s: f32, q: f32) -> f32 {
  if (s == 1.0) { return plait_inf(); }
  if (!(s > 1.0) || plait_isnan_f32(q)) { return plait_nan(); }
  if (q <= 0.0) {
    if (floor(q) == q) { return plait_inf(); }
    if (floor(s) != s) { return plait_nan(); }
    let f = q - floor(q);
    let sign = select(1.0, -1.0, fract(abs(s) * 0.5) != 0.0);
    return plait_zeta_right(s, f) + sign * (plait_zeta_right(s, 1.0 - f) - plait_zeta_right(s, 1.0 - q));
  }
  return plait_zeta_right(s, q);
}
