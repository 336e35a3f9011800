// Functions on float32, accurate to a few units in the last place whatever the driver's own do.

fn plait_inf() -> f32 { return bitcast<f32>(0x7f800000u); }
fn plait_nan() -> f32 { return bitcast<f32>(0x7fc00000u); }
fn plait_isnan_f32(x: f32) -> bool { return (bitcast<u32>(x) & 0x7fffffffu) > 0x7f800000u; }
fn plait_isinf_f32(x: f32) -> bool { return (bitcast<u32>(x) & 0x7fffffffu) == 0x7f800000u; }
fn plait_sign_f32(x: f32) -> f32 { return select(0.0, 1.0, x > 0.0) - select(0.0, 1.0, x < 0.0); }
fn plait_min_f32(a: f32, b: f32) -> f32 { return select(b, a, a < b || plait_isnan_f32(a)); }
fn plait_max_f32(a: f32, b: f32) -> f32 { return select(b, a, a > b || plait_isnan_f32(a)); }
fn plait_copysign_f32(a: f32, b: f32) -> f32 {
  return bitcast<f32>((bitcast<u32>(a) & 0x7fffffffu) | (bitcast<u32>(b) & 0x80000000u));
}
fn plait_rsqrt_f32(x: f32) -> f32 { return 1.0 / sqrt(x); }

// x * 2^n, in steps that neither overflow nor lose bits before the last.
fn plait_scale(x: f32, n: i32) -> f32 {
  let half = n / 2;
  return x * bitcast<f32>(u32(clamp(half + 127, 1, 254)) << 23u) * bitcast<f32>(u32(clamp(n - half + 127, 1, 254)) << 23u);
}

// The remainder of the exact division, with the sign of a.
fn plait_fmod_f32(a: f32, b: f32) -> f32 {
  let ua = bitcast<u32>(a) & 0x7fffffffu;
  let ub = bitcast<u32>(b) & 0x7fffffffu;
  if (ua >= 0x7f800000u || ub > 0x7f800000u || ub == 0u) { return plait_nan(); }
  if (ua < ub) { return a; }
  var ea = i32(ua >> 23u);
  var eb = i32(ub >> 23u);
  var ma = ua & 0x7fffffu;
  var mb = ub & 0x7fffffu;
  if (ea == 0) { ea = 1; } else { ma = ma | 0x800000u; }
  if (eb == 0) { eb = 1; } else { mb = mb | 0x800000u; }
  var n = ea - eb;
  for (var i = 0; i < 260 && n > 0; i++) {
    ma = ma % mb;
    let step = min(n, 8);
    ma = ma << u32(step);
    n = n - step;
  }
  ma = ma % mb;
  let sign = bitcast<u32>(a) & 0x80000000u;
  if (ma == 0u) { return bitcast<f32>(sign); }
  let shift = min(i32(countLeadingZeros(ma)) - 8, eb - 1);
  ma = ma << u32(shift);
  if (ma < 0x800000u) { return bitcast<f32>(sign | ma); }
  return bitcast<f32>(sign | (u32(eb - shift) << 23u) | (ma & 0x7fffffu));
}
fn plait_remainder_f32(a: f32, b: f32) -> f32 {
  let r = plait_fmod_f32(a, b);
  if ((r > 0.0 && b < 0.0) || (r < 0.0 && b > 0.0)) { return r + b; }
  return r;
}
fn plait_floor_divide_f32(a: f32, b: f32) -> f32 {
  if (b == 0.0) { return a / b; }
  let r = plait_fmod_f32(a, b);
  var q = (a - r) / b;
  if ((r > 0.0 && b < 0.0) || (r < 0.0 && b > 0.0)) { q = q - 1.0; }
  if (q == 0.0) { return plait_copysign_f32(0.0, a / b); }
  var f = floor(q);
  if (q - f > 0.5) { f = f + 1.0; }
  return f;
}

// exp(x) = 2^n (1 + m), with n an integer and m as it is near zero: for exp, expm1 and what is made of them.
fn plait_exp_parts(x: f32) -> vec2<f32> {
  let n = round(x * 1.44269504);
  let r = (x - n * 0.693359375) + n * 2.12194440e-4;
  let m = r + r * r * (0.5 + r * (0.16666576 + r * (0.041666467 + r * (0.00836318 + r * 0.0013933652))));
  return vec2<f32>(n, m);
}
fn plait_exp_f32(x: f32) -> f32 {
  if (plait_isnan_f32(x)) { return x; }
  let e = plait_exp_parts(clamp(x, -104.0, 89.0));
  let n = i32(e.x);
  let half = n >> 1u;
  return (1.0 + e.y) * bitcast<f32>(u32(half + 127) << 23u) * bitcast<f32>(u32(n - half + 127) << 23u);
}
// exp(x) for x up to 0, in fewer steps: what would be denormal may be zero, and NaN is anything.
fn plait_exp_share(x: f32) -> f32 {
  let e = plait_exp_parts(max(x, -89.5));
  return bitcast<f32>(max(bitcast<i32>(1.0 + e.y) + (i32(e.x) << 23u), 0));
}
fn plait_exp2_f32(x: f32) -> f32 {
  if (plait_isnan_f32(x)) { return x; }
  let c = clamp(x, -151.0, 129.0);
  let n = round(c);
  let e = plait_exp_parts((c - n) * 0.693147181);
  return plait_scale(1.0 + e.y, i32(n + e.x));
}
fn plait_expm1_f32(x: f32) -> f32 {
  if (plait_isnan_f32(x) || abs(x) < 1e-7) { return x; }
  let e = plait_exp_parts(clamp(x, -18.0, 89.0));
  let n = i32(e.x);
  if (n == 0) { return e.y; }
  if (n > 25) { return plait_scale(1.0 + e.y, n); }
  let s = bitcast<f32>(u32(n + 127) << 23u);
  return s * e.y + (s - 1.0);
}

// x = 2^n m with m between sqrt(1/2) and sqrt(2): m - 1 and n.
fn plait_log_parts(x: f32) -> vec2<f32> {
  let small = bitcast<u32>(x) < 0x800000u;
  let u = bitcast<u32>(select(x, x * 8388608.0, small));
  let n = i32(u - 0x3f3504f3u) >> 23u;
  return vec2<f32>(bitcast<f32>(u - (u32(n) << 23u)) - 1.0, f32(n - select(0, 23, small)));
}
// log(1+f) - f, for 1+f between sqrt(1/2) and sqrt(2).
fn plait_log_rest(f: f32) -> f32 {
  let s = f / (2.0 + f);
  let z = s * s;
  let r = z * (0.66666667 + z * (0.4 + z * (0.28571429 + z * (0.22222222 + z * 0.18181818))));
  let h = 0.5 * f * f;
  return s * (h + r) - h;
}
fn plait_log_special(x: f32) -> bool { return !(x > 0.0) || plait_isinf_f32(x); }
fn plait_log_edge(x: f32) -> f32 {
  if (x == 0.0) { return -plait_inf(); }
  if (x < 0.0) { return plait_nan(); }
  return x;
}
fn plait_log_f32(x: f32) -> f32 {
  if (plait_log_special(x)) { return plait_log_edge(x); }
  let l = plait_log_parts(x);
  return l.y * 0.693359375 + (l.x + (plait_log_rest(l.x) - l.y * 2.12194440e-4));
}
fn plait_log2_f32(x: f32) -> f32 {
  if (plait_log_special(x)) { return plait_log_edge(x); }
  let l = plait_log_parts(x);
  let rest = plait_log_rest(l.x);
  return l.y + (l.x * 1.44269502 + (l.x * 1.92596303e-8 + rest * 1.44269504));
}
fn plait_log10_f32(x: f32) -> f32 {
  if (plait_log_special(x)) { return plait_log_edge(x); }
  let l = plait_log_parts(x);
  let rest = plait_log_rest(l.x);
  return l.y * 0.30102539 + (l.x * 0.4342945 + (rest * 0.4342945 + l.y * 4.60503777e-6));
}
fn plait_log1p_f32(x: f32) -> f32 {
  if (abs(x) < 1e-7 || plait_isnan_f32(x)) { return x; }
  if (x <= -1.0 || plait_isinf_f32(x)) { return plait_log_edge(1.0 + x); }
  let u = 1.0 + x;
  let l = plait_log_parts(u);
  // What rounding took from 1 + x. Compilers may take (1 + x) - 1 for x, so it goes through the parts of u.
  let s = bitcast<f32>((127u + u32(clamp(i32(l.y), -30, 30))) << 23u);
  let lost = select((x - (s * l.x + (s - 1.0))) / u, 0.0, l.y > 24.0);
  return l.y * 0.693359375 + (l.x + (plait_log_rest(l.x) + (lost - l.y * 2.12194440e-4)));
}

// The upper half of a number's bits, through integers: compilers may take sums and differences for what they would be
// without rounding.
fn plait_upper(x: f32) -> f32 { return bitcast<f32>(bitcast<u32>(x) & 0xfffff000u); }
// x^y for finite x > 0: the logarithm in two parts, so that its product with y keeps what exp needs.
fn plait_power(x: f32, y: f32) -> f32 {
  let l = plait_log_parts(x);
  let f = l.x;
  let w = plait_upper(2.0 + f);
  let w_low = f - (w - 2.0);
  let s = plait_upper(f / (2.0 + f));
  let s_low = ((f - s * w) - s * w_low) / (2.0 + f);
  let t = s + s_low;
  let z = t * t;
  let rest = 2.0 * t * z * (0.33333333 + z * (0.2 + z * (0.14285714 + z * (0.11111111 + z * 0.09090909))));
  let big = l.y * 0.693359375;
  let tail = 2.0 * s_low + (rest - l.y * 2.12194440e-4);
  let high = plait_upper(big + (2.0 * s + tail));
  let low = ((big - high) + 2.0 * s) + tail;
  let y_high = plait_upper(y);
  let e_high = y_high * high;
  if (!(e_high < 91.0)) { return plait_inf(); }
  if (e_high < -106.0) { return 0.0; }
  let e_low = (y - y_high) * high + y * low;
  let e = plait_exp_parts(e_high);
  let g = 1.0 + e.y;
  return plait_scale(g + g * plait_exp_parts(e_low).y, i32(e.x));
}
fn plait_pow_f32(x: f32, y: f32) -> f32 {
  if (y == 0.0 || x == 1.0) { return 1.0; }
  if (plait_isnan_f32(x) || plait_isnan_f32(y)) { return plait_nan(); }
  let whole = abs(y) >= 16777216.0 || floor(y) == y;
  let odd = whole && abs(y) < 16777216.0 && fract(abs(y) * 0.5) != 0.0;
  let a = abs(x);
  if (plait_isinf_f32(y)) {
    if (a == 1.0) { return 1.0; }
    return select(0.0, plait_inf(), (a > 1.0) == (y > 0.0));
  }
  if (a == 0.0 || plait_isinf_f32(a)) {
    var r = select(plait_inf(), 0.0, (a == 0.0) == (y > 0.0));
    if (odd) { r = plait_copysign_f32(r, x); }
    return r;
  }
  if (x < 0.0 && !whole) { return plait_nan(); }
  let r = plait_power(a, clamp(y, -3e37, 3e37));
  return select(r, -r, x < 0.0 && odd);
}
fn plait_hypot_f32(x: f32, y: f32) -> f32 {
  if (plait_isinf_f32(x) || plait_isinf_f32(y)) { return plait_inf(); }
  let a = max(abs(x), abs(y));
  let b = min(abs(x), abs(y));
  if (plait_isnan_f32(x) || plait_isnan_f32(y)) { return plait_nan(); }
  if (a == 0.0) { return 0.0; }
  let n = clamp(127 - i32(bitcast<u32>(a) >> 23u), -126, 126);
  let u = plait_scale(a, n);
  let v = plait_scale(b, n);
  return plait_scale(sqrt(u * u + v * v), -n);
}

// x minus the nearest multiple of pi/2, and that multiple's number.
struct plait_quadrant { rest: f32, number: i32 }
fn plait_reduce(x: f32) -> plait_quadrant {
  var q: plait_quadrant;
  let a = abs(x);
  if (a < 800.0) {
    let n = round(x * 0.636619772);
    q.rest = ((x - n * 1.5703125) - n * 4.83751297e-4) - n * 7.549533620e-08 - n * 2.563344068e-12;
    q.number = i32(n);
    return q;
  }
  // x = m 2^(e-150). Of 2/pi, those 96 bits are taken of which the first counts fours in the product; word 0 stands
  // before the point.
  let bits = bitcast<u32>(a);
  let m = (bits & 0x7fffffu) | 0x800000u;
  let first = (bits >> 23u) - 120u;
  let p0 = m * plait_two_over_pi_from(first);
  let p1 = plait_wide(m, plait_two_over_pi_from(first + 32u));
  let p2 = plait_wide(m, plait_two_over_pi_from(first + 64u));
  let c = plait_add_i64(vec2<u32>(p2.y, 0u), vec2<u32>(p1.x, 0u));
  let high = p0 + p1.y + c.y;
  var number = i32(high >> 30u);
  var fraction = vec2<u32>((c.x << 2u) | (p2.x >> 30u), (high << 2u) | (c.x >> 30u));
  let up = (fraction.y >> 31u) == 1u;
  if (up) {
    number = number + 1;
    fraction = plait_neg_i64(fraction);
  }
  let n = countLeadingZeros(fraction.y);
  let f = f32(plait_shl_i64(fraction, vec2<u32>(n, 0u)).y) * bitcast<f32>((95u - n) << 23u) * 1.57079633;
  q.rest = select(f, -f, up != (x < 0.0));
  q.number = select(number, -number, x < 0.0);
  return q;
}
// 32 bits of 2/pi from a bit on.
fn plait_two_over_pi_from(bit: u32) -> u32 {
  let shift = bit % 32u;
  let high = plait_two_over_pi(bit / 32u);
  if (shift == 0u) { return high; }
  return (high << shift) | (plait_two_over_pi(bit / 32u + 1u) >> (32u - shift));
}
fn plait_two_over_pi(i: u32) -> u32 {
  switch (i) {
    case 1u: { return 0xa2f9836eu; }
    case 2u: { return 0x4e441529u; }
    case 3u: { return 0xfc2757d1u; }
    case 4u: { return 0xf534ddc0u; }
    case 5u: { return 0xdb629599u; }
    case 6u: { return 0x3c439041u; }
    case 7u: { return 0xfe5163abu; }
    case 8u: { return 0xdebbc561u; }
    default: { return 0u; }
  }
}
fn plait_sine(r: f32) -> f32 {
  let z = r * r;
  return r + r * z * (-0.16666667 + z * (0.008333332 + z * (-0.00019840086 + z * 2.7249823e-6)));
}
fn plait_cosine(r: f32) -> f32 {
  let z = r * r;
  return 1.0 - (0.5 * z - z * z * (0.041666664 + z * (-0.0013888304 + z * 2.4547971e-5)));
}
fn plait_circular(q: plait_quadrant, turn: i32) -> f32 {
  let n = (q.number + turn) & 3;
  let v = select(plait_sine(q.rest), plait_cosine(q.rest), (n & 1) == 1);
  return select(v, -v, n >= 2);
}
fn plait_unbounded(x: f32) -> bool { return plait_isnan_f32(x) || plait_isinf_f32(x); }
fn plait_sin_f32(x: f32) -> f32 {
  if (plait_unbounded(x)) { return plait_nan(); }
  if (x == 0.0) { return x; }
  return plait_circular(plait_reduce(x), 0);
}
fn plait_cos_f32(x: f32) -> f32 {
  if (plait_unbounded(x)) { return plait_nan(); }
  return plait_circular(plait_reduce(x), 1);
}
fn plait_tan_f32(x: f32) -> f32 {
  if (plait_unbounded(x)) { return plait_nan(); }
  if (x == 0.0) { return x; }
  let q = plait_reduce(x);
  return plait_circular(q, 0) / plait_circular(q, 1);
}
fn plait_arc(z: f32) -> f32 {
  return z * (0.16666666 + z * (0.07500099 + z * (0.04459803 + z * (0.031116152 + z * (0.017077876 + z * 0.033805724)))));
}
fn plait_asin_f32(x: f32) -> f32 {
  let a = abs(x);
  if (!(a <= 1.0)) { return plait_nan(); }
  if (a <= 0.5) { return x + x * plait_arc(x * x); }
  let z = 0.5 * (1.0 - a);
  let s = sqrt(z);
  return plait_copysign_f32(1.57079633 - (2.0 * (s + s * plait_arc(z)) + 4.37113883e-8), x);
}
fn plait_acos_f32(x: f32) -> f32 {
  let a = abs(x);
  if (!(a <= 1.0)) { return plait_nan(); }
  if (a <= 0.5) { return 1.57079633 - (x + (x * plait_arc(x * x) + 4.37113883e-8)); }
  let z = 0.5 * (1.0 - a);
  let s = sqrt(z);
  let r = 2.0 * (s + s * plait_arc(z));
  return select(r, 3.14159265 - (r + 8.74227766e-8), x < 0.0);
}
fn plait_atan_f32(x: f32) -> f32 {
  if (plait_isnan_f32(x)) { return x; }
  let a = abs(x);
  var t = a;
  var offset = 0.0;
  var lost = 0.0;
  if (a > 2.41421356) {
    t = -1.0 / a;
    offset = 1.57079633;
    lost = -4.37113883e-8;
  } else if (a > 0.414213562) {
    t = (a - 1.0) / (a + 1.0);
    offset = 0.785398163;
    lost = -2.18556941e-8;
  }
  let z = t * t;
  let r = t * z * (-0.3333333 + z * (0.19999553 + z * (-0.14264223 + z * (0.107462 + z * -0.06459048))));
  return plait_copysign_f32(offset + (t + (r + lost)), x);
}
fn plait_atan2_f32(y: f32, x: f32) -> f32 {
  if (plait_isnan_f32(x) || plait_isnan_f32(y)) { return plait_nan(); }
  let left = (bitcast<u32>(x) >> 31u) == 1u;
  if (y == 0.0) { return plait_copysign_f32(select(0.0, 3.14159265, left), y); }
  if (plait_isinf_f32(x) && plait_isinf_f32(y)) {
    return plait_copysign_f32(select(0.785398163, 2.35619449, left), y);
  }
  if (x == 0.0 || plait_isinf_f32(y)) { return plait_copysign_f32(1.57079633, y); }
  let a = abs(x);
  let b = abs(y);
  var r = 0.0;
  if (b > a) { r = 1.57079633 - plait_atan_f32(a / b); } else { r = plait_atan_f32(b / a); }
  if (left) { r = 3.14159265 - r; }
  return plait_copysign_f32(r, y);
}
fn plait_sinh_f32(x: f32) -> f32 {
  let a = abs(x);
  if (plait_isnan_f32(x)) { return x; }
  if (a > 40.0) {
    let h = plait_exp_f32(min(0.5 * a, 60.0));
    return plait_copysign_f32((0.5 * h) * h, x);
  }
  let e = plait_expm1_f32(a);
  return plait_copysign_f32(0.5 * (e + e / (e + 1.0)), x);
}
fn plait_cosh_f32(x: f32) -> f32 {
  if (plait_isnan_f32(x)) { return x; }
  let h = plait_exp_f32(min(0.5 * abs(x), 60.0));
  return (0.5 * h) * h + 0.5 / (h * h);
}
fn plait_tanh_f32(x: f32) -> f32 {
  // expm1 of 2 |x|, which is small enough for one scale.
  let e = plait_exp_parts(2.0 * min(abs(x), 10.0));
  let s = bitcast<f32>(u32(i32(e.x) + 127) << 23u);
  let m = s * e.y + (s - 1.0);
  return select(plait_copysign_f32(m / (m + 2.0), x), x, plait_isnan_f32(x));
}
fn plait_asinh_f32(x: f32) -> f32 {
  let a = abs(x);
  if (plait_isnan_f32(x) || plait_isinf_f32(x)) { return x; }
  if (a > 1e9) { return plait_copysign_f32(plait_log_f32(a) + 0.693147181, x); }
  return plait_copysign_f32(plait_log1p_f32(a + a * a / (1.0 + sqrt(1.0 + a * a))), x);
}
fn plait_acosh_f32(x: f32) -> f32 {
  if (!(x >= 1.0)) { return plait_nan(); }
  if (x > 1e9) { return plait_log_f32(x) + 0.693147181; }
  let t = x - 1.0;
  return plait_log1p_f32(t + sqrt(2.0 * t + t * t));
}
fn plait_atanh_f32(x: f32) -> f32 {
  let a = abs(x);
  if (!(a <= 1.0)) { return plait_nan(); }
  return plait_copysign_f32(0.5 * plait_log1p_f32(2.0 * a / (1.0 - a)), x);
}
fn plait_sigmoid_f32(x: f32) -> f32 { return 1.0 / (1.0 + plait_exp_f32(-x)); }

// exp(x^2) erfc(x) for x from 0.9 up.
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
// Hurwitz's zeta for q > 0, by Euler and Maclaurin's formula.
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
