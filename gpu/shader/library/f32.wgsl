// Functions on float32, accurate to a few units in the last place on every driver.

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

// x * 2^n, in steps that neither overflow nor lose bits before the last one.
fn plait_scale(x: f32, n: i32) -> f32 {
  let half = n / 2;
  return x * bitcast<f32>(u32(clamp(half + 127, 1, 254)) << 23u) * bitcast<f32>(u32(clamp(n - half + 127, 1, 254)) << 23u);
}

// The remainder of exact division, with the sign of a.
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

// exp(x) = 2^n (1 + m), for an integer n and an m that is accurate near zero: used by exp, expm1 and functions of
// these.
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
// exp(x) for x <= 0, in fewer steps. Denormal results may be zero; the result for NaN is undefined.
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

// x = 2^n m with m between sqrt(1/2) and sqrt(2): returns m - 1 and n.
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

// The upper half of the bits of x, by integer operations: compilers may simplify sums and differences as if they were
// exact.
fn plait_upper(x: f32) -> f32 { return bitcast<f32>(bitcast<u32>(x) & 0xfffff000u); }
// x^y for finite x > 0. The logarithm has two parts, so that its product with y is accurate enough for exp.
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

fn plait_sigmoid_f32(x: f32) -> f32 { return 1.0 / (1.0 + plait_exp_f32(-x)); }

// The next number from x in the direction of y. It works on bits, because arithmetic may flush denormal numbers to zero.
fn plait_nextafter_f32(x: f32, y: f32) -> f32 {
  if (plait_isnan_f32(x) || plait_isnan_f32(y)) { return plait_nan(); }
  let a = plait_place(x);
  let b = plait_place(y);
  if (a == b) { return y; }
  let near = select(a - 1, a + 1, b > a);
  let negative = near < 0 || (near == 0 && a < 0);
  return bitcast<f32>(select(u32(near), u32(-near) | 0x80000000u, negative));
}
// How many numbers are between zero and x, with the sign of x.
fn plait_place(x: f32) -> i32 {
  let b = bitcast<i32>(x);
  return select(b, -(b & 0x7fffffff), b < 0);
}

// The exponent of x = m 2^exponent, for m between 1/2 and 1; 0 if x is 0 or not finite. Then m is x.
fn plait_exponent_f32(x: f32) -> i32 {
  let b = bitcast<u32>(x) & 0x7fffffffu;
  if (b == 0u || b >= 0x7f800000u) { return 0; }
  if (b < 0x800000u) { return -117 - i32(countLeadingZeros(b)); }
  return i32(b >> 23u) - 126;
}
fn plait_mantissa_f32(x: f32, exponent: i32) -> f32 {
  var b = bitcast<u32>(x) & 0x7fffffffu;
  if (b == 0u || b >= 0x7f800000u) { return x; }
  if (b < 0x800000u) { b = b << (countLeadingZeros(b) - 8u); } // the first bit takes the place of the implicit one
  return bitcast<f32>((bitcast<u32>(x) & 0x80000000u) | 0x3f000000u | (b & 0x007fffffu));
}

fn plait_largest() -> f32 { return bitcast<f32>(0x7f7fffffu); }
// The bits of |x|: more than 0x7f800000 for NaN alone.
fn plait_magnitude(x: f32) -> u32 { return bitcast<u32>(x) & 0x7fffffffu; }

// An unsigned number in the order of floating-point numbers, in the high word. NaN is the largest.
fn plait_key_f32(x: f32) -> vec2<u32> {
  if (plait_isnan_f32(x)) { return vec2<u32>(0u, 0xffffffffu); }
  let b = bitcast<u32>(select(x, 0.0, x == 0.0));
  return vec2<u32>(0u, b ^ select(0x80000000u, 0xffffffffu, (b >> 31u) == 1u));
}
