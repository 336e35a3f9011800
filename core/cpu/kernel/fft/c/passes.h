// The radix passes. codelets.h includes this file.

// Where the first pass reads elements whose lanes are side by side, instead of rows that were loaded.
typedef struct {
  const T *in;
  int64_t step;
  const int32_t *element;  // of each row
  bool swap;
} SOURCE;

INLINE ROW NAME(read)(const SOURCE *s, int64_t i) {
  ROW a = NAME(side_by_side)(s->in + i * s->step);
  return s->swap ? NAME(swapped)(a) : a;
}

// Where the last pass writes rows: to elements whose lanes are side by side, times `scale`; or, if there is a middle, into
// it, times the powers of split lines.
typedef struct {
  T *out, scale;
  int64_t step;
  bool swap;
  ROW *middle;
  int64_t blocks;
  const T *w, *g;
} SINK;

INLINE void NAME(write)(const SINK *s, int64_t i, ROW a, bool middle) {
  if (middle) {
    const T *w = s->w + i * 2 * FFT_GROUP;
    ROW e = {NAME(at)(w), NAME(at)(w + FFT_GROUP)};
    if (s->g) e = NAME(times)(e, s->g + 2 * i);
    s->middle[i * s->blocks] = NAME(times_each)(a, e);
  } else {
    a = NAME(scaled)(a, s->scale, s->scale);
    NAME(put_side_by_side)(s->out + i * s->step, s->swap ? NAME(swapped)(a) : a);
  }
}

// A butterfly is the transform of r rows, m apart. In the first pass m is 1 and the rows are not multiplied.
#define EACH_BUTTERFLY(r)                                                    \
  for (int64_t b_ = 0; b_ < n; b_ += (r) * m)                                \
    for (int64_t k = 0; k < m; k++)

#define TWIDDLED(j, r) (first ? q[(j) * m] : NAME(times)(q[(j) * m], w + 2 * (k * ((r) - 1) + (j) - 1)))

// GET is row j of a butterfly, from where the pass reads it, and PUT writes one.
#define GET(j, r) (source ? NAME(read)(source, source->element[b_] + (j) * (n / (r))) : (j) ? TWIDDLED(j, r) : q[0])
#define PUT(j, ...)                                                          \
  {                                                                          \
    ROW put_ = __VA_ARGS__;                                                  \
    if (sink) NAME(write)(sink, k + (j) * m, put_, middle);                  \
    else q[(j) * m] = put_;                                                  \
  }

INLINE void NAME(pass2)(ROW *x, int64_t n, int64_t m, const T *w, bool first) {
  EACH_BUTTERFLY(2) {
    ROW *q = x + b_ + k, a = q[0], b = TWIDDLED(1, 2);
    q[0] = (ROW){a.re + b.re, a.im + b.im};
    q[m] = (ROW){a.re - b.re, a.im - b.im};
  }
}

INLINE void NAME(pass3)(ROW *x, int64_t n, int64_t m, const T *w, bool first) {
  const T h = (T)0.866025403784438646763723;  // sin(tau / 3)
  EACH_BUTTERFLY(3) {
    ROW *q = x + b_ + k, a = q[0], b = TWIDDLED(1, 3), c = TWIDDLED(2, 3);
    V sr = b.re + c.re, si = b.im + c.im, dr = (b.re - c.re) * h, di = (b.im - c.im) * h;
    V mr = a.re - sr * (T)0.5, mi = a.im - si * (T)0.5;
    q[0] = (ROW){a.re + sr, a.im + si};
    q[m] = (ROW){mr + di, mi - dr};
    q[2 * m] = (ROW){mr - di, mi + dr};
  }
}

// FOUR makes four rows their transform.
#define FOUR(a, b, c, d)                                                     \
  {                                                                          \
    ROW e_ = {a.re + c.re, a.im + c.im}, f_ = {a.re - c.re, a.im - c.im};    \
    ROW g_ = {b.re + d.re, b.im + d.im}, h_ = {b.re - d.re, b.im - d.im};    \
    a = (ROW){e_.re + g_.re, e_.im + g_.im};                                 \
    b = (ROW){f_.re + h_.im, f_.im - h_.re};                                 \
    c = (ROW){e_.re - g_.re, e_.im - g_.im};                                 \
    d = (ROW){f_.re - h_.im, f_.im + h_.re};                                 \
  }

INLINE void NAME(pass4)(ROW *x, int64_t n, int64_t m, const T *w, bool first, const SOURCE *source, const SINK *sink,
                        bool middle) {
  EACH_BUTTERFLY(4) {
    ROW *q = x + b_ + k, a = GET(0, 4), b = GET(1, 4), c = GET(2, 4), d = GET(3, 4);
    FOUR(a, b, c, d)
    PUT(0, a) PUT(1, b) PUT(2, c) PUT(3, d)
  }
}

// PAIR writes rows j and j + r/2 of a butterfly, from a row of the transform of even rows and one of that of odd rows,
// which has been multiplied.
#define PAIR(j, half, a, b)                                                  \
  PUT(j, (ROW){a.re + b.re, a.im + b.im})                                    \
  PUT((j) + (half), (ROW){a.re - b.re, a.im - b.im})

INLINE void NAME(pass8)(ROW *x, int64_t n, int64_t m, const T *w, bool first, const SOURCE *source, const SINK *sink,
                        bool middle) {
  const T h = (T)0.707106781186547524400844;  // cos(tau / 8)
  EACH_BUTTERFLY(8) {
    ROW *q = x + b_ + k, a = GET(0, 8), b = GET(1, 8), c = GET(2, 8), d = GET(3, 8);
    ROW e = GET(4, 8), f = GET(5, 8), g = GET(6, 8), o = GET(7, 8);
    FOUR(a, c, e, g)
    FOUR(b, d, f, o)
    d = (ROW){(d.re + d.im) * h, (d.im - d.re) * h}, f = (ROW){f.im, -f.re}, o = (ROW){(o.im - o.re) * h, (o.re + o.im) * -h};
    PAIR(0, 4, a, b)
    PAIR(1, 4, c, d)
    PAIR(2, 4, e, f)
    PAIR(3, 4, g, o)
  }
}

INLINE void NAME(pass16)(ROW *x, int64_t n, int64_t m, const T *w, bool first, const SOURCE *source, const SINK *sink,
                        bool middle) {
  // The cosines and sines of tau / 16, and of twice that.
  const T c1 = (T)0.923879532511286756128183, s1 = (T)0.382683432365089771728460, h = (T)0.707106781186547524400844;
  EACH_BUTTERFLY(16) {
    ROW *q = x + b_ + k;
    // Row j of the transform of rows i, i + 4, i + 8 and i + 12 is y<i><j>.
#define COLUMN(i)                                                                                                    \
    ROW y##i##0 = GET(i, 16), y##i##1 = GET((i) + 4, 16), y##i##2 = GET((i) + 8, 16), y##i##3 = GET((i) + 12, 16);   \
    FOUR(y##i##0, y##i##1, y##i##2, y##i##3)
    COLUMN(0)
    COLUMN(1)
    COLUMN(2)
    COLUMN(3)
#undef COLUMN
#define TURN(y, c, s) y = (ROW){y.re * (c) + y.im * (s), y.im * (c) - y.re * (s)};
    TURN(y11, c1, s1)
    y12 = (ROW){(y12.re + y12.im) * h, (y12.im - y12.re) * h};
    TURN(y13, s1, c1)
    y21 = (ROW){(y21.re + y21.im) * h, (y21.im - y21.re) * h};
    y22 = (ROW){y22.im, -y22.re};
    y23 = (ROW){(y23.im - y23.re) * h, (y23.re + y23.im) * -h};
    TURN(y31, s1, c1)
    y32 = (ROW){(y32.im - y32.re) * h, (y32.re + y32.im) * -h};
    TURN(y33, -c1, -s1)
#undef TURN
#define ACROSS(j)                                                                                                    \
    FOUR(y0##j, y1##j, y2##j, y3##j)                                                                                 \
    PUT(j, y0##j) PUT((j) + 4, y1##j) PUT((j) + 8, y2##j) PUT((j) + 12, y3##j)
    ACROSS(0)
    ACROSS(1)
    ACROSS(2)
    ACROSS(3)
#undef ACROSS
  }
}

INLINE void NAME(pass5)(ROW *x, int64_t n, int64_t m, const T *w, bool first) {
  // The cosines and sines of tau / 5 and twice that.
  const T c1 = (T)0.309016994374947424102293, c2 = (T)-0.809016994374947424102293;
  const T s1 = (T)0.951056516295153572116439, s2 = (T)0.587785252292473129168706;
  EACH_BUTTERFLY(5) {
    ROW *q = x + b_ + k, a = q[0], b = TWIDDLED(1, 5), c = TWIDDLED(2, 5), d = TWIDDLED(3, 5), e = TWIDDLED(4, 5);
    V pr = b.re + e.re, pi = b.im + e.im, qr = c.re + d.re, qi = c.im + d.im;
    V ur = b.re - e.re, ui = b.im - e.im, vr = c.re - d.re, vi = c.im - d.im;
    V fr = a.re + c1 * pr + c2 * qr, fi = a.im + c1 * pi + c2 * qi;
    V gr = a.re + c2 * pr + c1 * qr, gi = a.im + c2 * pi + c1 * qi;
    V hr = s1 * ur + s2 * vr, hi = s1 * ui + s2 * vi;
    V kr = s2 * ur - s1 * vr, ki = s2 * ui - s1 * vi;
    q[0] = (ROW){a.re + pr + qr, a.im + pi + qi};
    q[m] = (ROW){fr + hi, fi - hr};
    q[2 * m] = (ROW){gr + ki, gi - kr};
    q[3 * m] = (ROW){gr - ki, gi + kr};
    q[4 * m] = (ROW){fr - hi, fi + hr};
  }
}

// outputs writes rows i to i + count - 1 of a butterfly of any odd radix r, and those opposite, from its first row and
// the sums and differences of the others with those opposite.
INLINE void NAME(outputs)(ROW *q, int64_t m, int r, const T *roots, ROW a, const ROW *sum, const ROW *diff, int i,
                          const int count) {
  ROW e[OUTPUTS], o[OUTPUTS];
  int at[OUTPUTS];
  for (int u = 0; u < count; u++) e[u] = a, o[u] = (ROW){{0}, {0}}, at[u] = i + u;
  for (int j = 1; j <= r / 2; j++) {
    for (int u = 0; u < count; u++) {
      T c = roots[2 * at[u]], s = roots[2 * at[u] + 1];
      e[u].re += sum[j].re * c, e[u].im += sum[j].im * c;
      o[u].re += diff[j].re * s, o[u].im += diff[j].im * s;
      at[u] += i + u, at[u] -= at[u] >= r ? r : 0;
    }
  }
  for (int u = 0; u < count; u++) {
    q[(i + u) * m] = (ROW){e[u].re - o[u].im, e[u].im + o[u].re};
    q[(r - i - u) * m] = (ROW){e[u].re + o[u].im, e[u].im - o[u].re};
  }
}

// pass takes any odd radix. roots are the powers of the root of that order.
static TARGET void NAME(pass)(ROW *x, int64_t n, int64_t m, int r, const T *roots, const T *w, bool first) {
  EACH_BUTTERFLY(r) {
    ROW *q = x + b_ + k, sum[FFT_MAX_RADIX / 2 + 1], diff[FFT_MAX_RADIX / 2 + 1], a = q[0], total = a;
    for (int j = 1; j <= r / 2; j++) {
      ROW b = TWIDDLED(j, r), c = TWIDDLED(r - j, r);
      sum[j] = (ROW){b.re + c.re, b.im + c.im};
      diff[j] = (ROW){b.re - c.re, b.im - c.im};
      total.re += sum[j].re, total.im += sum[j].im;
    }
    q[0] = total;
    int i = 1;
    for (; i + OUTPUTS - 1 <= r / 2; i += OUTPUTS) NAME(outputs)(q, m, r, roots, a, sum, diff, i, OUTPUTS);
    for (; i <= r / 2; i++) NAME(outputs)(q, m, r, roots, a, sum, diff, i, 1);
  }
}

// A pass of each radix in each role. Only radices of ends read elements or write the result.
typedef void (*PASS)(ROW *x, int64_t n, int64_t m, const T *w, const SOURCE *source, const SINK *sink);
#define ROLE(r, role, ...)                                                                                              \
  static TARGET __attribute__((noinline)) void NAME(pass##r##_##role)(ROW *x, int64_t n, int64_t m, const T *w,         \
                                                                     const SOURCE *source, const SINK *sink) {          \
    (void)m, (void)source, (void)sink;                                                                                      \
    NAME(pass##r)(x, n, __VA_ARGS__);                                                                                       \
  }
#define TWO_ROLES(r)          \
  ROLE(r, first, 1, w, true)  \
  ROLE(r, next, m, w, false)
#define ALL_ROLES(r)                                             \
  ROLE(r, first, 1, w, true, NULL, NULL, false)                  \
  ROLE(r, next, m, w, false, NULL, NULL, false)                  \
  ROLE(r, from, 1, w, true, source, NULL, false)                 \
  ROLE(r, first_to, 1, w, true, NULL, sink, false)               \
  ROLE(r, from_to, 1, w, true, source, sink, false)              \
  ROLE(r, next_to, m, w, false, NULL, sink, false)               \
  ROLE(r, from_middle, 1, w, true, source, sink, true)           \
  ROLE(r, next_middle, m, w, false, NULL, sink, true)
TWO_ROLES(2)
TWO_ROLES(3)
TWO_ROLES(5)
ALL_ROLES(4)
ALL_ROLES(8)
ALL_ROLES(16)

static PASS NAME(pass_of)(int r, bool first, const SOURCE *source, const SINK *sink) {
#define OF_TWO(r) return first ? NAME(pass##r##_first) : NAME(pass##r##_next)
#define OF_ALL(r)                                                                                                       \
  if (sink && sink->middle) return first ? NAME(pass##r##_from_middle) : NAME(pass##r##_next_middle);                   \
  if (sink) return !first ? NAME(pass##r##_next_to) : source ? NAME(pass##r##_from_to) : NAME(pass##r##_first_to);      \
  return !first ? NAME(pass##r##_next) : source ? NAME(pass##r##_from) : NAME(pass##r##_first)
  switch (r) {
    case 2: OF_TWO(2);
    case 3: OF_TWO(3);
    case 5: OF_TWO(5);
    case 4: OF_ALL(4);
    case 8: OF_ALL(8);
    default: OF_ALL(16);
  }
#undef OF_TWO
#undef OF_ALL
}

// passes runs passes from `from` to `to` - 1 on n rows. *m is the product of the radices before, and *w the twiddles.
static TARGET void NAME(passes)(const struct fft_plan *p, int from, int to, ROW *x, int64_t n, int64_t *m, const T **w,
                                const SOURCE *source, const SINK *sink) {
  for (int i = from; i < to; i++) {
    int r = p->radix[i];
    if (fft_generic(r)) {
      const T *roots = *w;
      *w += 2 * r;
      NAME(pass)(x, n, *m, r, roots, *w, i == 0);
    } else if (r > 1) {
      NAME(pass_of)(r, i == 0, source, i == p->passes - 1 ? sink : NULL)(x, n, *m, *w, source, sink);
    }
    if (i) *w += 2 * *m * (r - 1);
    *m *= r;
  }
}

// transform makes rows, loaded in the plan's order, their transform. The first passes work within blocks of rows, so they
// run block by block while these are in the nearest cache. If there is a source, the first pass reads it instead, and if
// there is a sink, the last one writes to it: the plan has `ends`.
static TARGET void NAME(transform)(const struct fft_plan *p, ROW *x, const SOURCE *source, const SINK *sink) {
  int64_t block = 1, m = 1, n = p->n;
  int inner = 0;
  while (inner < p->passes && block * p->radix[inner] * (int64_t)sizeof *x <= FFT_NEAR) block *= p->radix[inner++];
  const T *w = p->twiddles;
  for (int64_t b = 0; inner && b < n; b += block) {
    m = 1, w = p->twiddles;
    NAME(passes)(p, 0, inner, x + b, block, &m, &w, source, sink);
  }
  NAME(passes)(p, inner, p->passes, x, n, &m, &w, source, sink);
}

#undef EACH_BUTTERFLY
#undef TWIDDLED
#undef GET
#undef PUT
#undef FOUR
#undef PAIR
#undef ROLE
#undef TWO_ROLES
#undef ALL_ROLES
