// Circular and hyperbolic functions on float32.

// x minus the nearest multiple of pi/2, and the number of that multiple.
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
// 32 bits of 2/pi, from a bit on.
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
fn plait_unbounded(x: f32) -> bool { return (bitcast<u32>(x) & 0x7f800000u) == 0x7f800000u; }
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
