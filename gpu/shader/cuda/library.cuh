// Functions of the library that CUDA computes in fewer steps than their text in WGSL. Those on integers give the same
// numbers.
namespace plait {

__forceinline__ unsigned long long joined(vec2<u32> v) { return (unsigned long long)v.y.v << 32 | v.x.v; }
__forceinline__ vec2<u32> halves(unsigned long long v) { return vec2<u32>(unsigned(v), unsigned(v >> 32)); }

static __forceinline__ vec2<u32> plait_wide(u32 a, u32 b) { return halves((unsigned long long)a.v * b.v); }
static __forceinline__ vec2<u32> plait_add_i64(vec2<u32> a, vec2<u32> b) { return halves(joined(a) + joined(b)); }
static __forceinline__ vec2<u32> plait_sub_i64(vec2<u32> a, vec2<u32> b) { return halves(joined(a) - joined(b)); }
static __forceinline__ vec2<u32> plait_neg_i64(vec2<u32> a) { return halves(0 - joined(a)); }
static __forceinline__ vec2<u32> plait_mul_i64(vec2<u32> a, vec2<u32> b) { return halves(joined(a) * joined(b)); }
static __forceinline__ bool plait_lt_i64(vec2<u32> a, vec2<u32> b) { return (long long)joined(a) < (long long)joined(b); }

static __forceinline__ f32 plait_erf_f32(f32 x) { return ::erff(x); }

// The quotient is rounded as by a division, but for one in millions, without what that does for numbers of every size.
static __forceinline__ f32 plait_log_rest(f32 f) {
  const f32 w = 2.0f + f, rough = __fdividef(1.0f, w), inverse = ::fmaf(rough, ::fmaf(-w, rough, 1.0f), rough);
  const f32 q = f * inverse, s = ::fmaf(::fmaf(-w, q, f), inverse, q), z = s * s, h = 0.5f * f * f;
  const f32 r = z * (0.66666667f + z * (0.4f + z * (0.28571429f + z * (0.22222222f + z * 0.18181818f))));
  return s * (h + r) - h;
}

// x^y for finite x > 0 and y. What rounding takes from a product is one operation, and the quotient may be a rough one.
static __forceinline__ f32 plait_power(f32 x, f32 y) {
  const bool small = x < 0x1p-126f;
  const unsigned u = bitcast<unsigned>(small ? x * 0x1p23f : x);
  const int n = int(u - 0x3f3504f3) >> 23;
  const f32 f = bitcast<f32>(u - (unsigned(n) << 23)) - 1.0f, e = f32(n - (small ? 23 : 0));
  // s + s_low = f / (2 + f), half the logarithm of (1 + f) but for the rest.
  const f32 w = 2.0f + f, w_low = f - (w - 2.0f), inverse = __fdividef(1.0f, w);
  const f32 s = f * inverse, s_low = inverse * ::fmaf(-s, w_low, ::fmaf(-s, w, f)), z = s * s;
  f32 rest = ::fmaf(z, 0.09090909f, 0.11111111f);
  rest = ::fmaf(z, rest, 0.14285714f);
  rest = ::fmaf(z, rest, 0.2f);
  // The product of s and z is cube + cube_low, of which a third counts.
  const f32 cube = s * z, cube_low = ::fmaf(s, z, -cube) + s * ::fmaf(s, s, -z);
  rest = 2.0f * ::fmaf(cube, ::fmaf(z, rest, 0.33333333f), 0.33333333f * cube_low);
  // high + low = log x
  const f32 big = e * 0.693359375f, sum = big + 2.0f * s;
  const f32 tail = ((big - sum) + 2.0f * s) + (2.0f * ::fmaf(z, s_low, s_low) + ::fmaf(e, -2.12194440e-4f, rest));
  const f32 high = sum + tail, low = (sum - high) + tail;
  const f32 product = y * high, lost = ::fmaf(y, low, ::fmaf(y, high, -product));
  if (!(product < 91.0f)) return __int_as_float(0x7f800000);
  if (product < -106.0f) return 0.0f;
  const f32 scale = ::rintf(product * 1.44269504f);
  const f32 r = ::fmaf(scale, 2.12194440e-4f, ::fmaf(scale, -0.693359375f, product)) + lost;
  f32 m = ::fmaf(r, 0.0013933652f, 0.00836318f);
  m = ::fmaf(r, m, 0.041666467f);
  m = ::fmaf(r, m, 0.16666576f);
  m = ::fmaf(r * r, ::fmaf(r, m, 0.5f), r) + 1.0f;
  const int whole = int(scale), half = whole >> 1;
  return m * bitcast<f32>(unsigned(half + 127) << 23) * bitcast<f32>(unsigned(whole - half + 127) << 23);
}
static __forceinline__ f32 plait_pow_f32(f32 x, f32 y) {
  const f32 inf = __int_as_float(0x7f800000), a = ::fabsf(x), b = ::fabsf(y);
  f32 r = plait_power(a, ::fminf(::fmaxf(y, -3e37f), 3e37f));
  if (x > 0.0f && x < inf && b < inf) return r;
  if (y == 0.0f || x == 1.0f) return 1.0f;
  if (x != x || y != y) return x + y;
  if (b == inf) return a == 1.0f ? 1.0f : (a > 1.0f) == (y > 0.0f) ? inf : 0.0f;
  const bool whole = ::floorf(y) == y, odd = whole && ::floorf(y * 0.5f) != y * 0.5f;
  if (a == 0.0f || a == inf) {
    r = (a == 0.0f) == (y > 0.0f) ? 0.0f : inf;
  } else if (!whole) {
    return __int_as_float(0x7fc00000);
  }
  return odd ? ::copysignf(r, x) : r;
}

} // namespace plait
