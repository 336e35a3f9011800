// What NVRTC has built in and programs use, for the host's compiler.
#include <math.h>
#include <string.h>

#define __forceinline__ inline
#define __device__
#define __global__
#define __grid_constant__
#define __launch_bounds__(...)

struct uint2 {
  unsigned x, y;
};

struct plait_size {
  unsigned x, y, z;
};

// Where the running invocation is: plaitk_host_place of shim.h.
struct plait_place {
  plait_size thread, block, grid;
  void (*barrier)();
};
extern plait_place *plait_here;

#define threadIdx (plait_here->thread)
#define blockIdx (plait_here->block)
#define gridDim (plait_here->grid)

static inline void __syncthreads() { plait_here->barrier(); }

// Invocations run one at a time.
static inline unsigned atomicAdd(unsigned *a, unsigned b) {
  const unsigned old = *a;
  *a = old + b;
  return old;
}
static inline unsigned atomicAnd(unsigned *a, unsigned b) {
  const unsigned old = *a;
  *a = old & b;
  return old;
}
static inline unsigned atomicOr(unsigned *a, unsigned b) {
  const unsigned old = *a;
  *a = old | b;
  return old;
}

// Conversions to integers saturate, and NaN becomes 0.
static inline int __double2int_rz(double v) {
  return v != v ? 0 : v >= 0x1p31 ? 0x7fffffff : v <= -0x1p31 ? -0x7fffffff - 1 : int(v);
}
static inline unsigned __double2uint_rz(double v) { return !(v > 0) ? 0 : v >= 0x1p32 ? 0xffffffffu : unsigned(v); }
static inline int __float2int_rz(float v) { return __double2int_rz(v); }
static inline unsigned __float2uint_rz(float v) { return __double2uint_rz(v); }
static inline float __int2float_rn(int v) { return float(v); }
static inline float __uint2float_rn(unsigned v) { return float(v); }
static inline double __int2double_rn(int v) { return v; }
static inline double __uint2double_rn(unsigned v) { return v; }

// A quotient that need not be rounded correctly.
static inline float __fdividef(float a, float b) { return a * (1 / b); }

static inline int __clz(unsigned v) { return v == 0 ? 32 : __builtin_clz(v); }
static inline int __popc(unsigned v) { return __builtin_popcount(v); }

static inline float __int_as_float(int v) { return __builtin_bit_cast(float, v); }
static inline double __longlong_as_double(long long v) { return __builtin_bit_cast(double, v); }
static inline long long __double_as_longlong(double v) { return __builtin_bit_cast(long long, v); }

// The instruction cvt.f32.f16.
static inline float plait_cvt_f32_f16(unsigned short h) {
  const unsigned sign = (h & 0x8000u) << 16, exponent = h >> 10 & 31, mantissa = h & 0x3ff;
  if (exponent == 0) return copysignf(float(mantissa) * 0x1p-24f, __builtin_bit_cast(float, sign));
  const unsigned wide = exponent == 31 ? 255 : exponent + 112;
  return __builtin_bit_cast(float, sign | wide << 23 | mantissa << 13);
}

// exp(x^2) erfc(x), which the C library lacks. The square is split, so that its rounding error counts as well.
static inline double erfcx(double x) {
  if (x > 25) {
    const double q = -0.5 / (x * x);
    return (1 + q * (1 + 3 * q * (1 + 5 * q * (1 + 7 * q * (1 + 9 * q))))) / (x * 1.7724538509055160273);
  }
  const double square = x * x, rest = fma(x, x, -square);
  return isinf(x) ? HUGE_VAL : exp(square) * (1 + rest) * erfc(x);
}

// The inverse of erf, by Halley's method from an approximation.
static inline double erfinv(double x) {
  const double a = fabs(x);
  if (!(a < 1)) return a == 1 ? copysign(HUGE_VAL, x) : NAN;
  const double l = log1p(-a) + log1p(a), t = 0x1.151eb851eb852p+2 + l / 2;
  double y = sqrt(sqrt(t * t - l / 0.147) - t);
  for (int i = 0; i < 5; i++) {
    const double excess = a < 0.5 ? erf(y) - a : (1 - a) - erfc(y);
    const double step = excess / (1.1283791670955125739 * exp(-y * y));
    y -= step / (1 + y * step);
  }
  return copysign(y, x);
}
