// What programs in CUDA C++ begin with: the types and functions of WGSL. Integers are structures, because C++ leaves
// undefined what WGSL defines: overflow, division by zero, shifts by 32 or more, and conversions out of range.
// All functions run on the GPU: programs are compiled with -default-device.
namespace plait {

template <class To, class From> __forceinline__ To bitcast(From v) {
  static_assert(sizeof(To) == sizeof(From), "bitcast keeps the size");
  return __builtin_bit_cast(To, v);
}

struct i32;

struct u32 {
  unsigned v;
  u32() = default;
  __forceinline__ constexpr u32(unsigned v) : v(v) {}
  __forceinline__ constexpr u32(int v) : v(v) {}
  __forceinline__ constexpr u32(long v) : v(v) {}
  __forceinline__ explicit u32(float v) : v(__float2uint_rz(v)) {}
  __forceinline__ explicit u32(double v) : v(__double2uint_rz(v)) {}
  __forceinline__ explicit constexpr u32(i32 v);
  __forceinline__ explicit operator float() const { return __uint2float_rn(v); }
  __forceinline__ explicit operator double() const { return v; }
  __forceinline__ explicit constexpr operator bool() const { return v != 0; }
};

struct i32 {
  int v;
  i32() = default;
  __forceinline__ constexpr i32(int v) : v(v) {}
  __forceinline__ constexpr i32(long v) : v(v) {}
  __forceinline__ explicit constexpr i32(unsigned v) : v(v) {}
  __forceinline__ explicit i32(float v) : v(__float2int_rz(v)) {}
  __forceinline__ explicit i32(double v) : v(__double2int_rz(v)) {}
  __forceinline__ explicit constexpr i32(u32 v) : v(v.v) {}
  __forceinline__ explicit operator float() const { return __int2float_rn(v); }
  __forceinline__ explicit operator double() const { return v; }
  __forceinline__ explicit constexpr operator bool() const { return v != 0; }
};

__forceinline__ constexpr u32::u32(i32 v) : v(v.v) {}

constexpr u32 operator""_u(unsigned long long v) { return u32(unsigned(v)); }
constexpr i32 operator""_i(unsigned long long v) { return i32(int(v)); }

using f32 = float;
using f64 = double;

// The type of a variable without one: integers without a suffix are i32.
template <class T> __forceinline__ constexpr T value(T v) { return v; }
__forceinline__ constexpr i32 value(int v) { return v; }

// What a switch compares.
__forceinline__ constexpr unsigned word(u32 v) { return v.v; }
__forceinline__ constexpr int word(i32 v) { return v.v; }

// Where C++ leaves a quotient undefined, WGSL divides by 1.
__forceinline__ constexpr unsigned divisor(u32 b) { return b.v == 0 ? 1 : b.v; }
__forceinline__ constexpr int divisor(i32 a, i32 b) { return b.v == 0 || (b.v == -1 && a.v == -0x7fffffff - 1) ? 1 : b.v; }

#define PLAIT_OPERATOR(T, op, expression) \
  __forceinline__ constexpr T operator op(T a, T b) { return expression; }
#define PLAIT_COMPARISON(op) \
  __forceinline__ constexpr bool operator op(u32 a, u32 b) { return a.v op b.v; } \
  __forceinline__ constexpr bool operator op(i32 a, i32 b) { return a.v op b.v; }
PLAIT_COMPARISON(==)
PLAIT_COMPARISON(!=)
PLAIT_COMPARISON(<)
PLAIT_COMPARISON(<=)
PLAIT_COMPARISON(>)
PLAIT_COMPARISON(>=)
PLAIT_OPERATOR(u32, +, a.v + b.v)
PLAIT_OPERATOR(u32, -, a.v - b.v)
PLAIT_OPERATOR(u32, *, a.v * b.v)
PLAIT_OPERATOR(u32, /, a.v / divisor(b))
PLAIT_OPERATOR(u32, %, a.v % divisor(b))
PLAIT_OPERATOR(u32, &, a.v & b.v)
PLAIT_OPERATOR(u32, |, a.v | b.v)
PLAIT_OPERATOR(u32, ^, a.v ^ b.v)
PLAIT_OPERATOR(i32, +, int(unsigned(a.v) + unsigned(b.v)))
PLAIT_OPERATOR(i32, -, int(unsigned(a.v) - unsigned(b.v)))
PLAIT_OPERATOR(i32, *, int(unsigned(a.v) * unsigned(b.v)))
PLAIT_OPERATOR(i32, /, a.v / divisor(a, b))
PLAIT_OPERATOR(i32, %, a.v % divisor(a, b))
PLAIT_OPERATOR(i32, &, a.v & b.v)
PLAIT_OPERATOR(i32, |, a.v | b.v)
PLAIT_OPERATOR(i32, ^, a.v ^ b.v)
__forceinline__ constexpr u32 operator<<(u32 a, u32 b) { return a.v << (b.v & 31); }
__forceinline__ constexpr u32 operator>>(u32 a, u32 b) { return a.v >> (b.v & 31); }
__forceinline__ constexpr i32 operator<<(i32 a, u32 b) { return int(unsigned(a.v) << (b.v & 31)); }
__forceinline__ constexpr i32 operator>>(i32 a, u32 b) { return a.v >> (b.v & 31); }
__forceinline__ constexpr u32 operator~(u32 a) { return ~a.v; }
__forceinline__ constexpr i32 operator~(i32 a) { return ~a.v; }
__forceinline__ constexpr i32 operator-(i32 a) { return int(0u - unsigned(a.v)); }

#define PLAIT_ASSIGNMENT(op) \
  template <class T> __forceinline__ u32 &operator op##=(u32 &a, T b) { return a = a op b; } \
  template <class T> __forceinline__ i32 &operator op##=(i32 &a, T b) { return a = a op b; }
PLAIT_ASSIGNMENT(+)
PLAIT_ASSIGNMENT(-)
PLAIT_ASSIGNMENT(*)
PLAIT_ASSIGNMENT(/)
PLAIT_ASSIGNMENT(%)
PLAIT_ASSIGNMENT(&)
PLAIT_ASSIGNMENT(|)
PLAIT_ASSIGNMENT(^)
PLAIT_ASSIGNMENT(<<)
PLAIT_ASSIGNMENT(>>)
__forceinline__ void operator++(u32 &a, int) { a.v++; }
__forceinline__ void operator--(u32 &a, int) { a.v--; }
__forceinline__ void operator++(i32 &a, int) { a = a + 1; }
__forceinline__ void operator--(i32 &a, int) { a = a - 1; }

// An index of any type.
struct subscript {
  unsigned v;
  __forceinline__ subscript(u32 i) : v(i.v) {}
  __forceinline__ subscript(i32 i) : v(i.v) {}
  __forceinline__ subscript(int i) : v(i) {}
};

// Vectors work element by element. A single number stands for a vector of it.
#define PLAIT_VECTOR_OPERATOR(V, op) \
  friend __forceinline__ auto operator op(V a, V b) { return a.each(b, [](T a, T b) { return a op b; }); }
#define PLAIT_VECTOR(V) \
  V() = default; \
  __forceinline__ T &operator[](subscript i) { return (&x)[i.v]; } \
  __forceinline__ const T &operator[](subscript i) const { return (&x)[i.v]; } \
  PLAIT_VECTOR_OPERATOR(V, +) \
  PLAIT_VECTOR_OPERATOR(V, -) \
  PLAIT_VECTOR_OPERATOR(V, *) \
  PLAIT_VECTOR_OPERATOR(V, /) \
  PLAIT_VECTOR_OPERATOR(V, %) \
  PLAIT_VECTOR_OPERATOR(V, &) \
  PLAIT_VECTOR_OPERATOR(V, |) \
  PLAIT_VECTOR_OPERATOR(V, ^) \
  PLAIT_VECTOR_OPERATOR(V, <<) \
  PLAIT_VECTOR_OPERATOR(V, >>) \
  PLAIT_VECTOR_OPERATOR(V, ==) \
  PLAIT_VECTOR_OPERATOR(V, !=) \
  PLAIT_VECTOR_OPERATOR(V, <) \
  PLAIT_VECTOR_OPERATOR(V, <=) \
  PLAIT_VECTOR_OPERATOR(V, >) \
  PLAIT_VECTOR_OPERATOR(V, >=) \
  friend __forceinline__ V operator-(V a) { return a.each([](T a) { return -a; }); } \
  friend __forceinline__ V operator~(V a) { return a.each([](T a) { return ~a; }); } \
  friend __forceinline__ V operator!(V a) { return a.each([](T a) { return !a; }); } \
  friend __forceinline__ V &operator+=(V &a, V b) { return a = a + b; } \
  friend __forceinline__ V &operator-=(V &a, V b) { return a = a - b; } \
  friend __forceinline__ V &operator*=(V &a, V b) { return a = a * b; } \
  friend __forceinline__ V &operator/=(V &a, V b) { return a = a / b; }

template <class T> struct alignas(2 * sizeof(T)) vec2 {
  T x, y;
  PLAIT_VECTOR(vec2)
  __forceinline__ vec2(T v) : x(v), y(v) {}
  __forceinline__ vec2(T x, T y) : x(x), y(y) {}
  template <class U> __forceinline__ explicit vec2(vec2<U> v) : x(T(v.x)), y(T(v.y)) {}
  __forceinline__ vec2 yx() const { return vec2(y, x); }
  template <class F> __forceinline__ auto each(F f) const { return vec2<decltype(f(x))>(f(x), f(y)); }
  template <class F> __forceinline__ auto each(vec2 b, F f) const {
    return vec2<decltype(f(x, x))>(f(x, b.x), f(y, b.y));
  }
  template <class F> __forceinline__ vec2 each(vec2 b, vec2 c, F f) const { return vec2(f(x, b.x, c.x), f(y, b.y, c.y)); }
};
template <class T> struct vec3 {
  T x, y, z;
  PLAIT_VECTOR(vec3)
  __forceinline__ vec3(T v) : x(v), y(v), z(v) {}
  __forceinline__ vec3(T x, T y, T z) : x(x), y(y), z(z) {}
  template <class F> __forceinline__ auto each(F f) const { return vec3<decltype(f(x))>(f(x), f(y), f(z)); }
  template <class F> __forceinline__ auto each(vec3 b, F f) const {
    return vec3<decltype(f(x, x))>(f(x, b.x), f(y, b.y), f(z, b.z));
  }
  template <class F> __forceinline__ vec3 each(vec3 b, vec3 c, F f) const {
    return vec3(f(x, b.x, c.x), f(y, b.y, c.y), f(z, b.z, c.z));
  }
};
template <class T> struct alignas(4 * sizeof(T)) vec4 {
  T x, y, z, w;
  PLAIT_VECTOR(vec4)
  __forceinline__ vec4(T v) : x(v), y(v), z(v), w(v) {}
  __forceinline__ vec4(T x, T y, T z, T w) : x(x), y(y), z(z), w(w) {}
  __forceinline__ vec4(vec2<T> a, T z, T w) : x(a.x), y(a.y), z(z), w(w) {}
  __forceinline__ vec4(T x, T y, vec2<T> b) : x(x), y(y), z(b.x), w(b.y) {}
  __forceinline__ vec4(vec2<T> a, vec2<T> b) : x(a.x), y(a.y), z(b.x), w(b.y) {}
  __forceinline__ vec4(vec3<T> a, T w) : x(a.x), y(a.y), z(a.z), w(w) {}
  __forceinline__ vec4(T x, vec3<T> b) : x(x), y(b.x), z(b.y), w(b.z) {}
  template <class U>
  __forceinline__ explicit vec4(vec4<U> v) : x(T(v.x)), y(T(v.y)), z(T(v.z)), w(T(v.w)) {}
  __forceinline__ vec2<T> xy() const { return vec2<T>(x, y); }
  __forceinline__ vec2<T> zw() const { return vec2<T>(z, w); }
  __forceinline__ vec2<T> wz() const { return vec2<T>(w, z); }
  __forceinline__ vec2<T> yx() const { return vec2<T>(y, x); }
  __forceinline__ vec3<T> xyz() const { return vec3<T>(x, y, z); }
  __forceinline__ vec3<T> yzw() const { return vec3<T>(y, z, w); }
  template <class F> __forceinline__ auto each(F f) const { return vec4<decltype(f(x))>(f(x), f(y), f(z), f(w)); }
  template <class F> __forceinline__ auto each(vec4 b, F f) const {
    return vec4<decltype(f(x, x))>(f(x, b.x), f(y, b.y), f(z, b.z), f(w, b.w));
  }
  template <class F> __forceinline__ vec4 each(vec4 b, vec4 c, F f) const {
    return vec4(f(x, b.x, c.x), f(y, b.y, c.y), f(z, b.z, c.z), f(w, b.w, c.w));
  }
};

template <class T> struct mat2x4 {
  vec4<T> columns[2];
  mat2x4() = default;
  __forceinline__ mat2x4(vec4<T> a, vec4<T> b) : columns{a, b} {}
  __forceinline__ mat2x4(T a, T b, T c, T d, T e, T f, T g, T h) : columns{vec4<T>(a, b, c, d), vec4<T>(e, f, g, h)} {}
  __forceinline__ vec4<T> &operator[](subscript i) { return columns[i.v]; }
  __forceinline__ const vec4<T> &operator[](subscript i) const { return columns[i.v]; }
  friend __forceinline__ mat2x4 operator+(mat2x4 a, mat2x4 b) { return mat2x4(a[0] + b[0], a[1] + b[1]); }
  friend __forceinline__ mat2x4 operator-(mat2x4 a, mat2x4 b) { return mat2x4(a[0] - b[0], a[1] - b[1]); }
  friend __forceinline__ mat2x4 operator*(mat2x4 a, T b) { return mat2x4(a[0] * b, a[1] * b); }
  friend __forceinline__ mat2x4 operator*(T a, mat2x4 b) { return mat2x4(a * b[0], a * b[1]); }
};

template <class T, int N> struct array {
  T elements[N];
  __forceinline__ T &operator[](subscript i) { return elements[i.v]; }
  __forceinline__ const T &operator[](subscript i) const { return elements[i.v]; }
};

template <class A, class B> __forceinline__ constexpr auto select(A no, B yes, bool c) -> decltype(c ? B() : A()) {
  return c ? yes : no;
}
template <class T> __forceinline__ vec2<T> select(vec2<T> no, vec2<T> yes, vec2<bool> c) {
  return vec2<T>(c.x ? yes.x : no.x, c.y ? yes.y : no.y);
}
template <class T> __forceinline__ vec4<T> select(vec4<T> no, vec4<T> yes, vec4<bool> c) {
  return vec4<T>(c.x ? yes.x : no.x, c.y ? yes.y : no.y, c.z ? yes.z : no.z, c.w ? yes.w : no.w);
}
__forceinline__ vec4<bool> operator||(vec4<bool> a, vec4<bool> b) {
  return vec4<bool>(a.x || b.x, a.y || b.y, a.z || b.z, a.w || b.w);
}
__forceinline__ bool any(bool v) { return v; }
__forceinline__ bool any(vec2<bool> v) { return v.x || v.y; }
__forceinline__ bool any(vec4<bool> v) { return v.x || v.y || v.z || v.w; }
__forceinline__ bool all(bool v) { return v; }
__forceinline__ bool all(vec2<bool> v) { return v.x && v.y; }
__forceinline__ bool all(vec4<bool> v) { return v.x && v.y && v.z && v.w; }

#define PLAIT_FUNCTION1(name, T, expression) __forceinline__ T name(T a) { return expression; }
#define PLAIT_FUNCTION2(name, T, expression) __forceinline__ T name(T a, T b) { return expression; }
#define PLAIT_FUNCTION3(name, T, expression) __forceinline__ T name(T a, T b, T c) { return expression; }
#define PLAIT_VECTORS1(name) \
  template <class T> __forceinline__ vec2<T> name(vec2<T> a) { return a.each([](T a) { return name(a); }); } \
  template <class T> __forceinline__ vec4<T> name(vec4<T> a) { return a.each([](T a) { return name(a); }); }
#define PLAIT_VECTORS2(name) \
  template <class T> __forceinline__ vec2<T> name(vec2<T> a, vec2<T> b) { \
    return a.each(b, [](T a, T b) { return name(a, b); }); \
  } \
  template <class T> __forceinline__ vec4<T> name(vec4<T> a, vec4<T> b) { \
    return a.each(b, [](T a, T b) { return name(a, b); }); \
  }
#define PLAIT_VECTORS3(name) \
  template <class T> __forceinline__ vec2<T> name(vec2<T> a, vec2<T> b, vec2<T> c) { \
    return a.each(b, c, [](T a, T b, T c) { return name(a, b, c); }); \
  } \
  template <class T> __forceinline__ vec4<T> name(vec4<T> a, vec4<T> b, vec4<T> c) { \
    return a.each(b, c, [](T a, T b, T c) { return name(a, b, c); }); \
  }
PLAIT_FUNCTION1(abs, f32, ::fabsf(a))
PLAIT_FUNCTION1(abs, i32, a.v < 0 ? -a : a)
PLAIT_FUNCTION1(floor, f32, ::floorf(a))
PLAIT_FUNCTION1(ceil, f32, ::ceilf(a))
PLAIT_FUNCTION1(trunc, f32, ::truncf(a))
PLAIT_FUNCTION1(round, f32, ::rintf(a))
PLAIT_FUNCTION1(fract, f32, a - ::floorf(a))
PLAIT_FUNCTION1(sqrt, f32, ::sqrtf(a))
PLAIT_FUNCTION1(exp, f32, ::expf(a))
PLAIT_FUNCTION1(exp2, f32, ::exp2f(a))
PLAIT_FUNCTION1(log, f32, ::logf(a))
PLAIT_FUNCTION1(log2, f32, ::log2f(a))
PLAIT_FUNCTION2(min, f32, ::fminf(a, b))
PLAIT_FUNCTION2(min, u32, a.v < b.v ? a.v : b.v)
PLAIT_FUNCTION2(min, i32, a.v < b.v ? a.v : b.v)
PLAIT_FUNCTION2(max, f32, ::fmaxf(a, b))
PLAIT_FUNCTION2(max, u32, a.v > b.v ? a.v : b.v)
PLAIT_FUNCTION2(max, i32, a.v > b.v ? a.v : b.v)
PLAIT_FUNCTION3(clamp, f32, min(max(a, b), c))
PLAIT_FUNCTION3(clamp, u32, min(max(a, b), c))
PLAIT_FUNCTION3(clamp, i32, min(max(a, b), c))
PLAIT_FUNCTION3(fma, f32, ::fmaf(a, b, c))
PLAIT_FUNCTION1(abs, f64, ::fabs(a))
PLAIT_FUNCTION1(floor, f64, ::floor(a))
PLAIT_FUNCTION1(ceil, f64, ::ceil(a))
PLAIT_FUNCTION1(trunc, f64, ::trunc(a))
PLAIT_FUNCTION1(round, f64, ::rint(a))
PLAIT_FUNCTION1(fract, f64, a - ::floor(a))
PLAIT_FUNCTION1(sqrt, f64, ::sqrt(a))
PLAIT_FUNCTION1(exp, f64, ::exp(a))
PLAIT_FUNCTION1(exp2, f64, ::exp2(a))
PLAIT_FUNCTION1(log, f64, ::log(a))
PLAIT_FUNCTION1(log2, f64, ::log2(a))
PLAIT_FUNCTION2(min, f64, ::fmin(a, b))
PLAIT_FUNCTION2(max, f64, ::fmax(a, b))
PLAIT_FUNCTION3(clamp, f64, min(max(a, b), c))
PLAIT_FUNCTION3(fma, f64, ::fma(a, b, c))
PLAIT_VECTORS1(abs)
PLAIT_VECTORS1(floor)
PLAIT_VECTORS1(ceil)
PLAIT_VECTORS1(trunc)
PLAIT_VECTORS1(round)
PLAIT_VECTORS1(sqrt)
PLAIT_VECTORS1(exp)
PLAIT_VECTORS2(min)
PLAIT_VECTORS2(max)
PLAIT_VECTORS3(clamp)
PLAIT_VECTORS3(fma)
template <class T> __forceinline__ T dot(vec2<T> a, vec2<T> b) { return a.x * b.x + a.y * b.y; }
template <class T> __forceinline__ T dot(vec4<T> a, vec4<T> b) { return a.x * b.x + a.y * b.y + a.z * b.z + a.w * b.w; }

__forceinline__ u32 countLeadingZeros(u32 v) { return __clz(v.v); }
__forceinline__ i32 countLeadingZeros(i32 v) { return __clz(v.v); }
__forceinline__ u32 countOneBits(u32 v) { return __popc(v.v); }

__forceinline__ f32 half_value(unsigned short bits) {
  f32 v;
  asm("cvt.f32.f16 %0, %1;" : "=f"(v) : "h"(bits));
  return v;
}
__forceinline__ vec2<f32> unpack2x16float(u32 v) { return vec2<f32>(half_value(v.v & 0xffff), half_value(v.v >> 16)); }

// A word for atomic operations, none of which orders other accesses.
template <class T> struct atomic { unsigned v; };
__forceinline__ u32 atomicAdd(atomic<u32> *a, u32 b) { return ::atomicAdd(&a->v, b.v); }
__forceinline__ u32 atomicAnd(atomic<u32> *a, u32 b) { return ::atomicAnd(&a->v, b.v); }
__forceinline__ u32 atomicOr(atomic<u32> *a, u32 b) { return ::atomicOr(&a->v, b.v); }
__forceinline__ u32 atomicLoad(atomic<u32> *a) { return *(volatile unsigned *)&a->v; }
__forceinline__ void atomicStore(atomic<u32> *a, u32 b) { *(volatile unsigned *)&a->v = b.v; }

// A barrier of CUDA is for all memory.
__forceinline__ void workgroupBarrier() { __syncthreads(); }
__forceinline__ void storageBarrier() {}

// The arguments of a program: its parameters, and a slab for each buffer.
using parameters = array<vec4<u32>, 32>;
struct buffer {
  void *at;
  unsigned long long bytes;
};

// The elements of a buffer. An index past the end is one of the last element.
template <class T> struct storage {
  T *at;
  unsigned last;
  __forceinline__ storage(const buffer &b) : at((T *)b.at) {
    const unsigned long long n = b.bytes / sizeof(T) - 1;
    last = n < 0xffffffff ? unsigned(n) : 0xffffffff;
  }
  __forceinline__ T &operator[](subscript i) const { return at[i.v < last ? i.v : last]; }
};

// An element of one or two bytes, whose bits programs have in a word.
template <class T> struct narrow {
  T v;
  narrow() = default;
  __forceinline__ explicit narrow(u32 bits) : v(bits.v) {}
  __forceinline__ explicit operator u32() const { return u32(unsigned(v)); }
};
using narrow8 = narrow<unsigned char>;
using narrow16 = narrow<unsigned short>;

// Four of them are accessed as a whole. Their index is a multiple of four.
template <class T> __forceinline__ T *narrow4(const storage<narrow<T>> &b, u32 e) {
  return (T *)__builtin_assume_aligned(&b.at[(e.v < b.last ? e.v : b.last) & ~3u], 4 * sizeof(T));
}
__forceinline__ vec4<u32> load_narrow4(const storage<narrow16> &b, u32 e) {
  uint2 words;
  memcpy(&words, narrow4(b, e), 8);
  return vec4<u32>(words.x & 0xffff, words.x >> 16, words.y & 0xffff, words.y >> 16);
}
__forceinline__ vec4<u32> load_narrow4(const storage<narrow8> &b, u32 e) {
  unsigned word;
  memcpy(&word, narrow4(b, e), 4);
  return vec4<u32>(word & 0xff, word >> 8 & 0xff, word >> 16 & 0xff, word >> 24);
}
__forceinline__ void store_narrow4(const storage<narrow16> &b, u32 e, vec4<u32> v) {
  const uint2 words = {v.x.v | v.y.v << 16, v.z.v | v.w.v << 16};
  memcpy(narrow4(b, e), &words, 8);
}
__forceinline__ void store_narrow4(const storage<narrow8> &b, u32 e, vec4<u32> v) {
  const unsigned word = v.x.v | v.y.v << 8 | v.z.v << 16 | v.w.v << 24;
  memcpy(narrow4(b, e), &word, 4);
}

} // namespace plait
