// Conversions between the form of values in memory and the form that programs compute with. A 64-bit integer is a
// pair of words, the low word first.

fn plait_f16(v: f32) -> u32 {
  let b = bitcast<u32>(v);
  let sign = (b >> 16u) & 0x8000u;
  let a = b & 0x7fffffffu;
  if (a >= 0x47800000u) { return sign | select(0x7c00u, 0x7e00u, a > 0x7f800000u); }
  if (a < 0x38800000u) {
    if (a < 0x33000000u) { return sign; }
    let shift = 126u - (a >> 23u);
    let m = (a & 0x7fffffu) | 0x800000u;
    let half = m >> shift;
    let rest = m & ((1u << shift) - 1u);
    let middle = 1u << (shift - 1u);
    return sign | (half + select(0u, 1u, rest > middle || (rest == middle && (half & 1u) == 1u)));
  }
  return sign | ((a - 0x38000000u + 0xfffu + ((a >> 13u) & 1u)) >> 13u);
}

fn plait_bf16(v: f32) -> u32 {
  let b = bitcast<u32>(v);
  if ((b & 0x7fffffffu) > 0x7f800000u) { return (b >> 16u) | 0x40u; }
  return (b + 0x7fffu + ((b >> 16u) & 1u)) >> 16u;
}

fn plait_f32_of_i64(v: vec2<u32>) -> f32 {
  if ((v.x == 0u) && (v.y == 0u)) { return 0.0; }
  let negative = (v.y >> 31u) == 1u;
  var a = v;
  if (negative) { a = plait_neg_i64(v); }
  if (a.y == 0u) { return select(f32(a.x), -f32(a.x), negative); }
  let n = countLeadingZeros(a.y);
  var top = a.y;
  var rest = a.x;
  if (n > 0u) {
    top = (a.y << n) | (a.x >> (32u - n));
    rest = a.x << n;
  }
  if (rest != 0u) { top = top | 1u; } // rounds as the bits below would
  let f = f32(top) * bitcast<f32>((127u + 32u - n) << 23u);
  return select(f, -f, negative);
}

fn plait_i64_of_f32(v: f32) -> vec2<u32> {
  let b = bitcast<u32>(v);
  let exponent = i32((b >> 23u) & 0xffu) - 150;
  if (exponent < -24) { return vec2<u32>(0u, 0u); }
  if (exponent > 39) { return vec2<u32>(0u, 0x80000000u); }
  var m = vec2<u32>((b & 0x7fffffu) | 0x800000u, 0u);
  if (exponent < 0) {
    m.x = m.x >> u32(-exponent);
  } else {
    m = plait_shl_i64(m, vec2<u32>(u32(exponent), 0u));
  }
  if ((b >> 31u) == 1u) { return plait_neg_i64(m); }
  return m;
}

fn plait_i64_of_i32(v: i32) -> vec2<u32> { return vec2<u32>(u32(v), u32(v >> 31u)); }
