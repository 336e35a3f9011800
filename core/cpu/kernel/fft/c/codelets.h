// The kernels for one element type and instruction set: T, LANES, TARGET, NAME, INT, an integer of the size of T, and
// OUTPUTS, how many rows of a long butterfly are summed at the same time: what registers hold.

#define V NAME(fft_vector)
#define U NAME(fft_unaligned)
#define M NAME(fft_mask)
#define ROW NAME(fft_row)
#define SOURCE NAME(fft_source)
#define SINK NAME(fft_sink)
#define PASS NAME(fft_pass)
#define INLINE static inline __attribute__((always_inline)) TARGET

typedef T V __attribute__((vector_size(LANES * sizeof(T))));
typedef T U __attribute__((vector_size(LANES * sizeof(T)), aligned(sizeof(T)), may_alias));
typedef INT M __attribute__((vector_size(LANES * sizeof(T))));
typedef struct {
  V re, im;
} ROW;

#if LANES == 16
#define EACH(F, h) \
  F(h, 0), F(h, 1), F(h, 2), F(h, 3), F(h, 4), F(h, 5), F(h, 6), F(h, 7), F(h, 8), F(h, 9), F(h, 10), F(h, 11), F(h, 12), F(h, 13), F(h, 14), F(h, 15)
#elif LANES == 8
#define EACH(F, h) F(h, 0), F(h, 1), F(h, 2), F(h, 3), F(h, 4), F(h, 5), F(h, 6), F(h, 7)
#elif LANES == 4
#define EACH(F, h) F(h, 0), F(h, 1), F(h, 2), F(h, 3)
#else
#define EACH(F, h) F(h, 0), F(h, 1)
#endif

#ifdef __clang__
#define SHUFFLE(a, b, F, h) __builtin_shufflevector(a, b, EACH(F, h))
#else
#define SHUFFLE(a, b, F, h) __builtin_shuffle(a, b, (M){EACH(F, h)})
#endif

// Of the elements of a and then b: every second one; two by two; blocks of h elements of both in turn.
#define EVEN(h, i) 2 * (i)
#define ODD(h, i) 2 * (i) + 1
#define LOW(h, i) (i) / 2 + (i) % 2 * LANES
#define HIGH(h, i) (i) / 2 + (i) % 2 * LANES + LANES / 2
#define EVEN_FALLING(h, i) 2 * (LANES - 1 - (i))
#define ODD_FALLING(h, i) 2 * (LANES - 1 - (i)) + 1
#define LOW_FALLING(h, i) LANES / 2 - 1 - (i) / 2 + (i) % 2 * LANES
#define HIGH_FALLING(h, i) LANES - 1 - (i) / 2 + (i) % 2 * LANES
#define UPPER(h, i) ((i) & (h) ? (i) - (h) + LANES : (i))
#define LOWER(h, i) ((i) & (h) ? (i) + LANES : (i) + (h))

#define TRANSPOSE_STEP(x, h)                                    \
  for (int i = 0; i < LANES; i++) {                             \
    if (i & (h)) continue;                                      \
    V a = x[i], b = x[i + (h)];                                 \
    x[i] = SHUFFLE(a, b, UPPER, h);                             \
    x[i + (h)] = SHUFFLE(a, b, LOWER, h);                       \
  }

INLINE void NAME(transpose)(V *x) {
#if LANES > 8
  TRANSPOSE_STEP(x, 8)
#endif
#if LANES > 4
  TRANSPOSE_STEP(x, 4)
#endif
#if LANES > 2
  TRANSPOSE_STEP(x, 2)
#endif
  TRANSPOSE_STEP(x, 1)
}

INLINE V NAME(at)(const T *p) { return (V) * (const U *)p; }
INLINE void NAME(to)(T *p, V v) { *(U *)p = (U)v; }

// times multiplies a row by the complex number at w.
INLINE ROW NAME(times)(ROW x, const T *w) {
  T c = w[0], s = w[1];
  return (ROW){x.re * c - x.im * s, x.im * c + x.re * s};
}

INLINE ROW NAME(conjugate)(ROW a) { return (ROW){a.re, -a.im}; }
INLINE ROW NAME(swapped)(ROW a) { return (ROW){a.im, a.re}; }

// A row of numbers that are side by side, and one of numbers in falling order of which p has the first.
INLINE ROW NAME(side_by_side)(const T *p) {
  V a = NAME(at)(p), b = NAME(at)(p + LANES);
  return (ROW){SHUFFLE(a, b, EVEN, 0), SHUFFLE(a, b, ODD, 0)};
}
INLINE ROW NAME(falling)(const T *p) {
  V a = NAME(at)(p - 2 * LANES + 2), b = NAME(at)(p - LANES + 2);
  return (ROW){SHUFFLE(a, b, EVEN_FALLING, 0), SHUFFLE(a, b, ODD_FALLING, 0)};
}
INLINE void NAME(put_side_by_side)(T *p, ROW x) {
  NAME(to)(p, SHUFFLE(x.re, x.im, LOW, 0));
  NAME(to)(p + LANES, SHUFFLE(x.re, x.im, HIGH, 0));
}
INLINE void NAME(put_falling)(T *p, ROW x) {
  NAME(to)(p - LANES + 2, SHUFFLE(x.re, x.im, LOW_FALLING, 0));
  NAME(to)(p - 2 * LANES + 2, SHUFFLE(x.re, x.im, HIGH_FALLING, 0));
}

// times_each multiplies the lanes of two rows.
INLINE ROW NAME(times_each)(ROW x, ROW w) { return (ROW){x.re * w.re - x.im * w.im, x.im * w.re + x.re * w.im}; }

INLINE ROW NAME(scaled)(ROW a, T re, T im) { return (ROW){a.re * re, a.im * im}; }

// number is a complex number in all lanes, imaginary part times `sign`.
INLINE ROW NAME(number)(const T *p, T sign) { return (ROW){(V){0} + p[0], (V){0} + p[1] * sign}; }
INLINE void NAME(put_number)(T *p, ROW x) { p[0] = x.re[0], p[1] = x.im[0]; }

// Whether the pointers of all lanes follow each other in steps of `unit` elements.
INLINE bool NAME(adjacent)(T *const *p, int64_t unit) {
  for (int l = 1; l < LANES; l++) {
    if (p[l] - p[0] != unit * l) return false;
  }
  return true;
}

// The row of element i.
#define AT(i) (order ? order[i] : (i))

// load reads `rows` elements of each lane, `step` apart, with imaginary parts `imag` after the real ones; of FFT_REAL they are 0. Element i
// becomes row order[i], or i. swap exchanges the parts.
static TARGET void NAME(load)(ROW *x, const int32_t *order, int64_t rows, T *const *p, int64_t step, int64_t imag,
                              bool swap) {
#define PUT(i, a, b)                                              \
  {                                                               \
    int64_t at_ = AT(i);                                          \
    x[at_] = swap ? (ROW){b, a} : (ROW){a, b};                    \
  }
  const V zero = {0};
  if (imag == 1 && NAME(adjacent)(p, 2)) {
    for (int64_t i = 0; i < rows; i++) {
      const T *q = p[0] + i * step;
      V a = NAME(at)(q), b = NAME(at)(q + LANES);
      PUT(i, SHUFFLE(a, b, EVEN, 0), SHUFFLE(a, b, ODD, 0))
    }
    return;
  }
  if (NAME(adjacent)(p, 1)) {
    for (int64_t i = 0; i < rows; i++) {
      const T *q = p[0] + i * step;
      PUT(i, NAME(at)(q), imag == FFT_REAL ? zero : NAME(at)(q + imag))
    }
    return;
  }
  int64_t i = 0;
  if (step == 2 && imag == 1) {
    for (; i + LANES / 2 <= rows; i += LANES / 2) {
      V v[LANES];
      for (int l = 0; l < LANES; l++) v[l] = NAME(at)(p[l] + 2 * i);
      NAME(transpose)(v);
      for (int j = 0; j < LANES / 2; j++) PUT(i + j, v[2 * j], v[2 * j + 1])
    }
  } else if (step == 1 && imag == FFT_REAL) {
    for (; i + LANES <= rows; i += LANES) {
      V v[LANES];
      for (int l = 0; l < LANES; l++) v[l] = NAME(at)(p[l] + i);
      NAME(transpose)(v);
      for (int j = 0; j < LANES; j++) PUT(i + j, v[j], zero)
    }
  }
  for (; i < rows; i++) {
    V a = zero, b = zero;
    for (int l = 0; l < LANES; l++) {
      a[l] = p[l][i * step];
      if (imag != FFT_REAL) b[l] = p[l][i * step + imag];
    }
    PUT(i, a, b)
  }
#undef PUT
}

// store writes `rows` rows to the first `lanes` lanes, as load reads them, times `scale`; imaginary parts times
// `imag_scale`, or, for FFT_REAL, not at all.
static TARGET void NAME(store)(const ROW *x, int64_t rows, T *const *p, int64_t lanes, int64_t step, int64_t imag,
                               T scale, T imag_scale, bool swap) {
// What is written two vectors later is in memory, where many lines are: the processor sees no pattern in steps between these.
#define FETCH(q) __builtin_prefetch((q) + 2 * LANES, 1)
#define RE(i) ((swap ? x[i].im : x[i].re) * scale)
#define IM(i) ((swap ? x[i].re : x[i].im) * imag_scale)
  if (lanes == LANES && imag == 1 && NAME(adjacent)(p, 2)) {
    for (int64_t i = 0; i < rows; i++) {
      V a = RE(i), b = IM(i);
      T *q = p[0] + i * step;
      NAME(to)(q, SHUFFLE(a, b, LOW, 0));
      NAME(to)(q + LANES, SHUFFLE(a, b, HIGH, 0));
    }
    return;
  }
  if (lanes == LANES && NAME(adjacent)(p, 1)) {
    for (int64_t i = 0; i < rows; i++) {
      T *q = p[0] + i * step;
      NAME(to)(q, RE(i));
      if (imag != FFT_REAL) NAME(to)(q + imag, IM(i));
    }
    return;
  }
  int64_t i = 0;
  if (step == 2 && imag == 1) {
    for (; i + LANES / 2 <= rows; i += LANES / 2) {
      V v[LANES];
      for (int j = 0; j < LANES / 2; j++) v[2 * j] = RE(i + j), v[2 * j + 1] = IM(i + j);
      NAME(transpose)(v);
      for (int l = 0; l < lanes; l++) NAME(to)(p[l] + 2 * i, v[l]), FETCH(p[l] + 2 * i);
    }
  } else if (step == 1 && imag == FFT_REAL) {
    for (; i + LANES <= rows; i += LANES) {
      V v[LANES];
      for (int j = 0; j < LANES; j++) v[j] = RE(i + j);
      NAME(transpose)(v);
      for (int l = 0; l < lanes; l++) NAME(to)(p[l] + i, v[l]), FETCH(p[l] + i);
    }
  }
  for (; i < rows; i++) {
    V a = RE(i), b = IM(i);
    for (int l = 0; l < lanes; l++) {
      p[l][i * step] = a[l];
      if (imag != FFT_REAL) p[l][i * step + imag] = b[l];
    }
  }
#undef FETCH
#undef RE
#undef IM
}

#include "passes.h"

// separated returns element k of the transform of a real line, and in *other the one opposite, from elements k and m - k
// of that of its m points, where w is the k-th power of the root.
INLINE ROW NAME(separated)(ROW a, ROW b, ROW w, ROW *other) {
  const T half = (T)0.5;
  ROW even = {(a.re + b.re) * half, (a.im - b.im) * half};
  ROW odd = NAME(times_each)((ROW){(a.im + b.im) * half, (b.re - a.re) * half}, w);
  *other = (ROW){even.re - odd.re, odd.im - even.im};
  return (ROW){even.re + odd.re, even.im + odd.im};
}

// joined is the way back, times 2. w is the conjugate of the power.
INLINE ROW NAME(joined)(ROW a, ROW b, ROW w, ROW *other) {
  ROW sum = {a.re + b.re, a.im - b.im};
  ROW d = NAME(times_each)((ROW){a.re - b.re, a.im + b.im}, w);
  ROW p = {-d.im, d.re};
  *other = (ROW){sum.re - p.re, p.im - sum.im};
  return (ROW){sum.re + p.re, sum.im + p.im};
}

// swaps reports whether a transform is the inverse one.
INLINE bool NAME(swaps)(const struct plaitk_fft *f) {
  return f->kind == FFT_HALF_TO_REAL || (f->kind == FFT_COMPLEX && f->inverse);
}

static TARGET void NAME(lines)(const struct plaitk_fft *f, int64_t first, void *scratch) {
  const struct plaitk_fft_plan *p = f->plan;
  int64_t lanes = f->lines - first < LANES ? f->lines - first : LANES, points = p->points, half = p->n / 2;
  T *in[LANES], *out[LANES];
  for (int l = 0; l < LANES; l++) {
    int64_t rest = first + (l < lanes ? l : lanes - 1), i = 0, o = 0;
    for (int d = f->nk - 1; d >= 0; d--) {
      int64_t at = rest % f->ksize[d];
      rest /= f->ksize[d], i += at * f->kin[d], o += at * f->kout[d];
    }
    in[l] = (T *)f->in + i, out[l] = (T *)f->out + o;
  }
  ROW *x = scratch, *y = x + points;
  const int32_t *order = p->whole.order;
  const T *w = p->halves;
  T scale = (T)f->scale, imag_scale = f->inverse ? -scale : scale;
  switch (f->kind) {
    case FFT_COMPLEX:
      if (p->whole.ends && lanes == LANES && NAME(adjacent)(in, 2) && NAME(adjacent)(out, 2)) {
        SOURCE source = {in[0], f->in_step, p->whole.element, f->inverse};
        SINK sink = {.out = out[0], .scale = scale, .step = f->out_step, .swap = f->inverse};
        NAME(transform)(&p->whole, x, &source, &sink);
        break;
      }
      NAME(load)(x, order, points, in, f->in_step, 1, f->inverse);
      NAME(transform)(&p->whole, x, NULL, NULL);
      NAME(store)(x, points, out, lanes, f->out_step, 1, scale, scale, f->inverse);
      break;
    case FFT_REAL_TO_HALF:
      if (!w) {
        NAME(load)(x, order, points, in, f->in_step, FFT_REAL, false);
        NAME(transform)(&p->whole, x, NULL, NULL);
        NAME(store)(x, half + 1, out, lanes, f->out_step, 1, scale, imag_scale, false);
        break;
      }
      NAME(load)(x, order, points, in, 2 * f->in_step, f->in_step, false);
      NAME(transform)(&p->whole, x, NULL, NULL);
      for (int64_t k = 0; k <= points / 2; k++) {
        ROW other, a = NAME(separated)(x[k], x[k ? points - k : 0], NAME(number)(w + 2 * k, 1), &other);
        y[points - k] = other, y[k] = a;
      }
      NAME(store)(y, points + 1, out, lanes, f->out_step, 1, scale, imag_scale, false);
      break;
    default:
      NAME(load)(y, NULL, half + 1, in, f->in_step, 1, false);
      if (!f->inverse) {
        for (int64_t k = 0; k <= half; k++) y[k] = NAME(conjugate)(y[k]);
      }
      y[0].im = (V){0};
      if (!w) {
        x[AT(0)] = NAME(swapped)(y[0]);
        for (int64_t k = 1; k <= half; k++) {
          x[AT(k)] = NAME(swapped)(y[k]), x[AT(points - k)] = NAME(swapped)(NAME(conjugate)(y[k]));
        }
        NAME(transform)(&p->whole, x, NULL, NULL);
        NAME(store)(x, points, out, lanes, f->out_step, FFT_REAL, scale, scale, true);
        break;
      }
      y[points].im = (V){0};
      for (int64_t k = 0; k <= points / 2; k++) {
        ROW other, a = NAME(joined)(y[k], y[points - k], NAME(number)(w + 2 * k, -1), &other);
        if (k) x[AT(points - k)] = NAME(swapped)(other);
        x[AT(k)] = NAME(swapped)(a);
      }
      NAME(transform)(&p->whole, x, NULL, NULL);
      NAME(store)(x, points, out, lanes, 2 * f->out_step, f->out_step, scale, scale, true);
  }
}

#include "stages.h"

static const struct fft_kernels NAME(kernels) = {LANES, NAME(lines), NAME(columns), NAME(rows), NAME(modulate), NAME(filter),
                                                 NAME(demodulate), NAME(separate), NAME(join)};

#undef V
#undef U
#undef M
#undef ROW
#undef SOURCE
#undef SINK
#undef PASS
#undef INLINE
#undef EACH
#undef SHUFFLE
#undef EVEN
#undef ODD
#undef LOW
#undef HIGH
#undef EVEN_FALLING
#undef ODD_FALLING
#undef LOW_FALLING
#undef HIGH_FALLING
#undef UPPER
#undef LOWER
#undef TRANSPOSE_STEP
#undef AT
#undef OUTPUTS
#undef T
#undef INT
#undef LANES
#undef TARGET
#undef NAME
