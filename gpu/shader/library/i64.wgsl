// Arithmetic on 64-bit integers, which wraps. Division by zero gives 0; kernels report it as an error.

fn plait_add_i64(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
  let low = a.x + b.x;
  return vec2<u32>(low, a.y + b.y + select(0u, 1u, low < a.x));
}
fn plait_neg_i64(a: vec2<u32>) -> vec2<u32> { return plait_add_i64(~a, vec2<u32>(1u, 0u)); }
fn plait_sub_i64(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
  return vec2<u32>(a.x - b.x, a.y - b.y - select(0u, 1u, a.x < b.x));
}
fn plait_wide(a: u32, b: u32) -> vec2<u32> {
  let al = a & 0xffffu;
  let ah = a >> 16u;
  let bl = b & 0xffffu;
  let bh = b >> 16u;
  let low = al * bl;
  let first = ah * bl + (low >> 16u);
  let second = al * bh + (first & 0xffffu);
  return vec2<u32>((second << 16u) | (low & 0xffffu), ah * bh + (first >> 16u) + (second >> 16u));
}
fn plait_mul_i64(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
  let low = plait_wide(a.x, b.x);
  return vec2<u32>(low.x, low.y + a.x * b.y + a.y * b.x);
}
fn plait_eq_i64(a: vec2<u32>, b: vec2<u32>) -> bool { return a.x == b.x && a.y == b.y; }
fn plait_ne_i64(a: vec2<u32>, b: vec2<u32>) -> bool { return a.x != b.x || a.y != b.y; }
fn plait_lt_i64(a: vec2<u32>, b: vec2<u32>) -> bool {
  return i32(a.y) < i32(b.y) || (a.y == b.y && a.x < b.x);
}
fn plait_le_i64(a: vec2<u32>, b: vec2<u32>) -> bool { return !plait_lt_i64(b, a); }
fn plait_gt_i64(a: vec2<u32>, b: vec2<u32>) -> bool { return plait_lt_i64(b, a); }
fn plait_ge_i64(a: vec2<u32>, b: vec2<u32>) -> bool { return !plait_lt_i64(a, b); }
fn plait_negative(a: vec2<u32>) -> bool { return (a.y >> 31u) == 1u; }
fn plait_abs_i64(a: vec2<u32>) -> vec2<u32> {
  if (plait_negative(a)) { return plait_neg_i64(a); }
  return a;
}
fn plait_sign_i64(a: vec2<u32>) -> vec2<u32> {
  if (plait_negative(a)) { return vec2<u32>(0xffffffffu, 0xffffffffu); }
  return vec2<u32>(select(0u, 1u, (a.x | a.y) != 0u), 0u);
}
fn plait_min_i64(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> { return select(b, a, plait_lt_i64(a, b)); }
fn plait_max_i64(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> { return select(a, b, plait_lt_i64(a, b)); }

// The quotient and remainder of two unsigned numbers.
struct plait_division { quotient: vec2<u32>, rest: vec2<u32> }
fn plait_divide(a: vec2<u32>, b: vec2<u32>) -> plait_division {
  var d: plait_division;
  if ((b.x | b.y) == 0u) { return d; }
  if ((a.y | b.y) == 0u) {
    d.quotient.x = a.x / b.x;
    d.rest.x = a.x % b.x;
    return d;
  }
  var n = a;
  for (var i = 0u; i < 64u; i++) {
    let carry = d.rest.y >> 31u;
    d.rest = vec2<u32>((d.rest.x << 1u) | (n.y >> 31u), (d.rest.y << 1u) | (d.rest.x >> 31u));
    n = vec2<u32>(n.x << 1u, (n.y << 1u) | (n.x >> 31u));
    d.quotient = vec2<u32>(d.quotient.x << 1u, (d.quotient.y << 1u) | (d.quotient.x >> 31u));
    if (carry == 1u || d.rest.y > b.y || (d.rest.y == b.y && d.rest.x >= b.x)) {
      d.rest = plait_sub_i64(d.rest, b);
      d.quotient.x = d.quotient.x | 1u;
    }
  }
  return d;
}
fn plait_trunc_divide_i64(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
  let q = plait_divide(plait_abs_i64(a), plait_abs_i64(b)).quotient;
  if (plait_negative(a) != plait_negative(b)) { return plait_neg_i64(q); }
  return q;
}
fn plait_fmod_i64(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
  let r = plait_divide(plait_abs_i64(a), plait_abs_i64(b)).rest;
  if (plait_negative(a)) { return plait_neg_i64(r); }
  return r;
}
fn plait_remainder_i64(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
  let r = plait_fmod_i64(a, b);
  if ((r.x | r.y) != 0u && plait_negative(b) != plait_negative(r)) { return plait_add_i64(r, b); }
  return r;
}
fn plait_floor_divide_i64(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
  let q = plait_trunc_divide_i64(a, b);
  let r = plait_fmod_i64(a, b);
  if ((r.x | r.y) != 0u && plait_negative(a) != plait_negative(b)) { return plait_sub_i64(q, vec2<u32>(1u, 0u)); }
  return q;
}
fn plait_pow_i64(base: vec2<u32>, exponent: vec2<u32>) -> vec2<u32> {
  let one = vec2<u32>(1u, 0u);
  if (plait_negative(exponent)) {
    if (plait_eq_i64(base, one)) { return one; }
    if ((base.x & base.y) == 0xffffffffu) { return select(base, one, (exponent.x & 1u) == 0u); }
    return vec2<u32>(0u, 0u);
  }
  var a = base;
  var n = exponent;
  var r = one;
  for (var i = 0u; i < 63u && (n.x | n.y) != 0u; i++) {
    if ((n.x & 1u) == 1u) { r = plait_mul_i64(r, a); }
    a = plait_mul_i64(a, a);
    n = vec2<u32>((n.x >> 1u) | (n.y << 31u), n.y >> 1u);
  }
  return r;
}
fn plait_bit_and_i64(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> { return a & b; }
fn plait_bit_or_i64(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> { return a | b; }
fn plait_bit_xor_i64(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> { return a ^ b; }
fn plait_bit_not_i64(a: vec2<u32>) -> vec2<u32> { return ~a; }
fn plait_shl_i64(a: vec2<u32>, count: vec2<u32>) -> vec2<u32> {
  let n = count.x;
  if (count.y != 0u || n > 63u) { return vec2<u32>(0u, 0u); }
  if (n == 0u) { return a; }
  if (n >= 32u) { return vec2<u32>(0u, a.x << (n - 32u)); }
  return vec2<u32>(a.x << n, (a.y << n) | (a.x >> (32u - n)));
}
fn plait_shr_i64(a: vec2<u32>, count: vec2<u32>) -> vec2<u32> {
  var n = count.x;
  if (count.y != 0u || n > 63u) { n = 63u; }
  if (n == 0u) { return a; }
  let high = i32(a.y);
  if (n >= 32u) { return vec2<u32>(u32(high >> (n - 32u)), u32(high >> 31u)); }
  return vec2<u32>((a.x >> n) | (a.y << (32u - n)), u32(high >> n));
}
fn plait_gcd_i64(x: vec2<u32>, y: vec2<u32>) -> vec2<u32> {
  var a = plait_abs_i64(x);
  var b = plait_abs_i64(y);
  for (var i = 0u; i < 128u && (b.x | b.y) != 0u; i++) {
    let r = plait_divide(a, b).rest;
    a = b;
    b = r;
  }
  return a;
}
