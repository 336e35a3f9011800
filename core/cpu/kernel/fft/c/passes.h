// The radix passes. codelets.h includes this file.

// A butterfly is the transform of r rows, m apart. In the first pass m is 1 and the rows are not multiplied.
#define EACH_BUTTERFLY(r)                                                    \
  for (int64_t b_ = 0; b_ < n; b_ += (r) * m)                                \
    for (int64_t k = 0; k < m; k++)

#define TWIDDLED(j, r) (first ? q[(j) * m] : NAME(times)(q[(j) * m], w + 2 * (k * ((r) - 1) + (j) - 1)))

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

INLINE void NAME(pass4)(ROW *x, int64_t n, int64_t m, const T *w, bool first) {
  EACH_BUTTERFLY(4) {
    ROW *q = x + b_ + k, a = q[0], b = TWIDDLED(1, 4), c = TWIDDLED(2, 4), d = TWIDDLED(3, 4);
    V er = a.re + c.re, ei = a.im + c.im, fr = a.re - c.re, fi = a.im - c.im;
    V gr = b.re + d.re, gi = b.im + d.im, hr = b.re - d.re, hi = b.im - d.im;
    q[0] = (ROW){er + gr, ei + gi};
    q[m] = (ROW){fr + hi, fi - hr};
    q[2 * m] = (ROW){er - gr, ei - gi};
    q[3 * m] = (ROW){fr - hi, fi + hr};
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

// passes runs passes from `from` to `to` - 1 on n rows. *m is the product of the radices before, and *w the twiddles.
INLINE void NAME(passes)(const struct fft_plan *p, int from, int to, ROW *x, int64_t n, int64_t *before,
                         const T **twiddles) {
  int64_t m = *before;
  const T *w = *twiddles;
  for (int i = from; i < to; i++) {
    int r = p->radix[i];
    const T *roots = w;
    if (r > FFT_UNROLLED) w += 2 * r;
    switch (r) {
      case 1: break;
      case 2: i ? NAME(pass2)(x, n, m, w, false) : NAME(pass2)(x, n, 1, w, true); break;
      case 3: i ? NAME(pass3)(x, n, m, w, false) : NAME(pass3)(x, n, 1, w, true); break;
      case 4: i ? NAME(pass4)(x, n, m, w, false) : NAME(pass4)(x, n, 1, w, true); break;
      case 5: i ? NAME(pass5)(x, n, m, w, false) : NAME(pass5)(x, n, 1, w, true); break;
      default: NAME(pass)(x, n, m, r, roots, w, i == 0);
    }
    if (i) w += 2 * m * (r - 1);
    m *= r;
  }
  *before = m, *twiddles = w;
}

// transform makes rows, loaded in the plan's order, their transform. The first passes work within blocks of rows, so they
// run block by block while these are in the nearest cache.
static TARGET void NAME(transform)(const struct fft_plan *p, ROW *x) {
  int64_t block = 1, m, n = p->n;
  int inner = 0;
  while (inner < p->passes && block * p->radix[inner] * (int64_t)sizeof *x <= FFT_NEAR) block *= p->radix[inner++];
  const T *w = p->twiddles;
  for (int64_t b = 0; inner && b < n; b += block) {
    m = 1, w = p->twiddles;
    NAME(passes)(p, 0, inner, x + b, block, &m, &w);
  }
  if (!inner) m = 1;
  NAME(passes)(p, inner, p->passes, x, n, &m, &w);
}

#undef EACH_BUTTERFLY
#undef TWIDDLED
