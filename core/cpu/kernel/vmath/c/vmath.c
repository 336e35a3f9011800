// Runs each function of plait_vmath.h over many floats with a given instruction set, and measures its error.
//
// The loops are compiled as those of kernels are, which do not observe exceptions: otherwise they would not be vectors.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("no-trapping-math")
#endif
#include "vmath.h"
#include "../../../include/plait_vmath.h"

#define UNARY(f)                                                                                                         \
  f(exp) f(exp2) f(expm1) f(log) f(log2) f(log10) f(log1p) f(sin) f(cos) f(tan) f(asin) f(acos) f(atan) f(sinh) f(cosh) \
  f(tanh) f(asinh) f(acosh) f(atanh) f(erf) f(erfc) f(erfinv) f(normal_cdf) f(lgamma) f(digamma) f(sigmoid) f(softplus) f(logsigmoid) \
  f(sqrt) f(rsqrt) f(floor) f(ceil) f(trunc) f(round)

#define BINARY(f) f(pow) f(atan2) f(fmod) f(remainder) f(floor_divide)

#define UNARY_LOOP(name, suffix, target)                                                                       \
  target static void name##_##suffix(float *restrict y, const float *restrict a, const float *b, int64_t n) {  \
    (void)b;                                                                                                   \
    _Pragma("omp simd") for (int64_t i = 0; i < n; i++) y[i] = plait_vm_##name##f(a[i]);                       \
  }

#define BINARY_LOOP(name, suffix, target)                                                                                \
  target static void name##_##suffix(float *restrict y, const float *restrict a, const float *restrict b, int64_t n) {   \
    _Pragma("omp simd") for (int64_t i = 0; i < n; i++) y[i] = plait_vm_##name##f(a[i], b[i]);                           \
  }

// The functions that also vectorise for doubles.
#define DOUBLE(f)                                                                                                       \
  f(expm1) f(log1p) f(sinh) f(cosh) f(tanh) f(asinh) f(acosh) f(atanh) f(sigmoid) f(softplus) f(logsigmoid) f(erf) f(erfc) \
  f(erfinv) f(asin) f(acos) f(atan)
#define DOUBLE_NEAR(f) f(exp) f(exp2) f(log) f(log2) f(log10) f(sin) f(cos) f(tan)
#define DOUBLE_BINARY(f) f(atan2) f(pow)

// The tests of arguments that are not near.
#define far_exp plait_vm_far_exp
#define far_exp2 plait_vm_far_exp2
#define far_log plait_vm_far_log
#define far_log2 plait_vm_far_log
#define far_log10 plait_vm_far_log
#define far_sin plait_vm_far_trig
#define far_cos plait_vm_far_trig
#define far_tan plait_vm_far_trig

#define DOUBLE_LOOP(name, suffix, target)                                                                                \
  target static void name##_double_##suffix(double *restrict y, const double *restrict a, const double *b, int64_t n) { \
    (void)b;                                                                                                            \
    _Pragma("omp simd") for (int64_t i = 0; i < n; i++) y[i] = plait_vm_##name(a[i]);                                   \
  }

// As the kernels do, it takes the function for near arguments where all are near.
#define DOUBLE_NEAR_LOOP(name, suffix, target)                                                                           \
  target static void name##_double_##suffix(double *restrict y, const double *restrict a, const double *b, int64_t n) { \
    (void)b;                                                                                                            \
    uint64_t far = 0;                                                                                                   \
    _Pragma("omp simd reduction(| : far)") for (int64_t i = 0; i < n; i++) far |= far_##name(a[i]);                      \
    if (far == 0) {                                                                                                     \
      _Pragma("omp simd") for (int64_t i = 0; i < n; i++) y[i] = plait_vm_near_##name(a[i]);                            \
    } else {                                                                                                            \
      for (int64_t i = 0; i < n; i++) y[i] = plait_vm_##name(a[i]);                                                     \
    }                                                                                                                   \
  }

#define DOUBLE_BINARY_LOOP(name, suffix, target)                                                                                  \
  target static void name##_double_##suffix(double *restrict y, const double *restrict a, const double *restrict b, int64_t n) { \
    _Pragma("omp simd") for (int64_t i = 0; i < n; i++) y[i] = plait_vm_##name(a[i], b[i]);                                      \
  }

#define LOOP_BASE(kind, name) kind##_LOOP(name, base, )
#define UNARY_BASE(name) LOOP_BASE(UNARY, name)
#define BINARY_BASE(name) LOOP_BASE(BINARY, name)
#define DOUBLE_BASE(name) LOOP_BASE(DOUBLE, name)
#define DOUBLE_NEAR_BASE(name) LOOP_BASE(DOUBLE_NEAR, name)
#define DOUBLE_BINARY_BASE(name) LOOP_BASE(DOUBLE_BINARY, name)
UNARY(UNARY_BASE)
BINARY(BINARY_BASE)
DOUBLE(DOUBLE_BASE)
DOUBLE_NEAR(DOUBLE_NEAR_BASE)
DOUBLE_BINARY(DOUBLE_BINARY_BASE)

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define UNARY_V3(name) UNARY_LOOP(name, v3, __attribute__((target("arch=x86-64-v3"))))
#define BINARY_V3(name) BINARY_LOOP(name, v3, __attribute__((target("arch=x86-64-v3"))))
#define UNARY_V4(name) UNARY_LOOP(name, v4, __attribute__((target("arch=x86-64-v4"))))
#define BINARY_V4(name) BINARY_LOOP(name, v4, __attribute__((target("arch=x86-64-v4"))))
#define DOUBLE_V3(name) DOUBLE_LOOP(name, v3, __attribute__((target("arch=x86-64-v3"))))
#define DOUBLE_V4(name) DOUBLE_LOOP(name, v4, __attribute__((target("arch=x86-64-v4"))))
#define DOUBLE_NEAR_V3(name) DOUBLE_NEAR_LOOP(name, v3, __attribute__((target("arch=x86-64-v3"))))
#define DOUBLE_NEAR_V4(name) DOUBLE_NEAR_LOOP(name, v4, __attribute__((target("arch=x86-64-v4"))))
#define DOUBLE_BINARY_V3(name) DOUBLE_BINARY_LOOP(name, v3, __attribute__((target("arch=x86-64-v3"))))
#define DOUBLE_BINARY_V4(name) DOUBLE_BINARY_LOOP(name, v4, __attribute__((target("arch=x86-64-v4"))))
UNARY(UNARY_V3)
BINARY(BINARY_V3)
DOUBLE(DOUBLE_V3)
DOUBLE_NEAR(DOUBLE_NEAR_V3)
DOUBLE_BINARY(DOUBLE_BINARY_V3)
UNARY(UNARY_V4)
BINARY(BINARY_V4)
DOUBLE(DOUBLE_V4)
DOUBLE_NEAR(DOUBLE_NEAR_V4)
DOUBLE_BINARY(DOUBLE_BINARY_V4)
#define VARIANTS(name) {name##_base, name##_v3, name##_v4}
static int supported(int variant) {
  if (variant == 0) return 1;
  int v3 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  if (variant == 1) return v3;
  return v3 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
         __builtin_cpu_supports("avx512bw");
}
#else
#define VARIANTS(name) {name##_base, name##_base, name##_base}
static int supported(int variant) { return variant == 0; }
#endif

#define UNARY_REFERENCE(name) \
  static double name##_reference(double a, double b) { return (void)b, plait_vm_##name(a); }
#define BINARY_REFERENCE(name) \
  static double name##_reference(double a, double b) { return plait_vm_##name(a, b); }
UNARY(UNARY_REFERENCE)
BINARY(BINARY_REFERENCE)

typedef void (*loop)(float *, const float *, const float *, int64_t);

static const struct {
  const char *name;
  int arguments;
  loop variants[3];
  double (*reference)(double, double);
} functions[] = {
#define UNARY_ROW(name) {#name, 1, VARIANTS(name), name##_reference},
#define BINARY_ROW(name) {#name, 2, VARIANTS(name), name##_reference},
    UNARY(UNARY_ROW) BINARY(BINARY_ROW)};

static long double sigmoidl(long double x) { return 1.0L / (1.0L + expl(-x)); }
static long double softplusl(long double x) { return (x < 0.0L ? 0.0L : x) + log1pl(expl(-fabsl(x))); }
static long double logsigmoidl(long double x) { return -softplusl(-x); }

// Halley steps from the double's result.
static long double erfinvl(long double x) {
  long double a = fabsl(x), y = fabsl((long double)plait_vm_erfinv((double)x));
  for (int i = 0; i < 2 && a < 1.0L && a > 0.0L; i++) {
    long double excess = a < 0.5L ? erfl(y) - a : (1.0L - a) - erfcl(y);
    long double step = excess / (1.12837916709551257390L * expl(-y * y));
    y -= step / (1.0L + y * step);
  }
  return copysignl(y, x);
}

#define DOUBLE_REFERENCE(name) \
  static long double name##_long(long double a, long double b) { return (void)b, name##l(a); }
#define DOUBLE_BINARY_REFERENCE(name) \
  static long double name##_long(long double a, long double b) { return name##l(a, b); }
DOUBLE(DOUBLE_REFERENCE)
DOUBLE_NEAR(DOUBLE_REFERENCE)
DOUBLE_BINARY(DOUBLE_BINARY_REFERENCE)

static const struct {
  const char *name;
  int arguments;
  void (*variants[3])(double *, const double *, const double *, int64_t);
  long double (*reference)(long double, long double);
} doubles[] = {
#define DOUBLE_ROW(name) {#name, 1, VARIANTS(name##_double), name##_long},
#define DOUBLE_BINARY_ROW(name) {#name, 2, VARIANTS(name##_double), name##_long},
    DOUBLE(DOUBLE_ROW) DOUBLE_NEAR(DOUBLE_ROW) DOUBLE_BINARY(DOUBLE_BINARY_ROW)};

int plaitk_vmath_supported(int variant) { return supported(variant); }

const char *plaitk_vmath_name(int function, int *arguments) {
  if (function < 0 || (size_t)function >= sizeof functions / sizeof *functions) return NULL;
  *arguments = functions[function].arguments;
  return functions[function].name;
}

void plaitk_vmath_apply(int function, int variant, float *y, const float *a, const float *b, int64_t n) {
  functions[function].variants[variant](y, a, b, n);
}

void plaitk_vmath_reference(int function, double *y, const float *a, const float *b, int64_t n) {
  for (int64_t i = 0; i < n; i++) y[i] = functions[function].reference((double)a[i], b ? (double)b[i] : 0.0);
}

double plaitk_vmath_double(int function, double a, double b) { return functions[function].reference(a, b); }

static double ulp_of(double want) {
  if (fabs(want) < 0x1p-126) return 0x1p-149;
  int e;
  frexp(want, &e);
  return ldexp(1.0, e > 128 ? 104 : e - 24);
}

// The distance of got from want, in ulp of the float nearest to want. It is infinite if only one of them is NaN, an
// infinity, or a zero of that sign. Absolute distances up to `slack` count as 0.
static double error_of(float got, double want, double slack) {
  float nearest = (float)want;
  if (fabs((double)got - want) < slack) return 0.0;
  if (isnan(nearest) || isnan(got)) return isnan(nearest) && isnan(got) ? 0.0 : INFINITY;
  if (isinf(nearest) && isinf(want)) return got == nearest ? 0.0 : INFINITY;
  if (signbit(got) != signbit(nearest)) return INFINITY;
  double g = isinf(got) ? copysign(0x1p128, got) : (double)got;
  double w = fabs(want) > 0x1p128 ? copysign(0x1p128, want) : want;
  return fabs(g - w) / ulp_of(w);
}

double plaitk_vmath_worst(const float *got, const double *want, int64_t n, double slack, int64_t *at) {
  double worst = -1.0;
  for (int64_t i = 0; i < n; i++) {
    double e = error_of(got[i], want[i], slack);
    if (!(e <= worst)) worst = e, *at = i;
  }
  return worst;
}

const char *plaitk_vmath_double_name(int function, int *arguments) {
  if (function < 0 || (size_t)function >= sizeof doubles / sizeof *doubles) return NULL;
  *arguments = doubles[function].arguments;
  return doubles[function].name;
}

void plaitk_vmath_double_apply(int function, int variant, double *y, const double *a, const double *b, int64_t n) {
  doubles[function].variants[variant](y, a, b, n);
}

double plaitk_vmath_double_worst(int function, const double *got, const double *a, const double *b, int64_t n, int64_t *at) {
  double worst = -1.0;
  for (int64_t i = 0; i < n; i++) {
    long double want = doubles[function].reference((long double)a[i], b ? (long double)b[i] : 0.0L);
    double nearest = (double)want, e;
    if (isnan(nearest) || isnan(got[i]) || isinf(nearest) || isinf(got[i])) {
      e = got[i] == nearest || (isnan(nearest) && isnan(got[i])) ? 0.0 : INFINITY;
    } else if (signbit(got[i]) != signbit(nearest)) {
      e = INFINITY;
    } else {
      int exponent = -1021;
      if (fabs(nearest) >= 0x1p-1022) frexp(nearest, &exponent);
      e = (double)ldexpl(fabsl((long double)got[i] - want), 53 - exponent);
    }
    if (!(e <= worst)) worst = e, *at = i;
  }
  return worst;
}
