// The stages of split lines and of convolutions. codelets.h includes this file.

static TARGET void NAME(columns)(const struct plaitk_fft *f, const void *in, int64_t step, int64_t imag, int64_t first,
                                 void *middle, void *scratch) {
  const struct plaitk_fft_plan *p = f->plan;
  T *q[LANES];
  for (int l = 0; l < LANES; l++) {
    int64_t j = first + l < p->n2 ? first + l : p->n2 - 1;
    q[l] = (T *)in + j * step;
  }
  ROW *x = scratch, *y = (ROW *)middle + first / LANES;
  const T *w = (const T *)p->in_group + first % FFT_GROUP, *g = p->of_group;
  int64_t blocks = (p->n2 + LANES - 1) / LANES, group = first / FFT_GROUP * p->n1;
  if (g) g += 2 * group;
  else w += 2 * FFT_GROUP * group;
  if (p->first.ends && imag == 1 && NAME(adjacent)(q, 2)) {
    SOURCE source = {q[0], p->n2 * step, p->first.element, NAME(swaps)(f)};
    SINK sink = {.middle = y, .blocks = blocks, .w = w, .g = g};
    NAME(transform)(&p->first, x, &source, &sink);
    return;
  }
  NAME(load)(x, p->first.order, p->n1, q, p->n2 * step, imag, NAME(swaps)(f));
  NAME(transform)(&p->first, x, NULL, NULL);
  for (int64_t k = 0; k < p->n1; k++, w += 2 * FFT_GROUP) {
    ROW e = {NAME(at)(w), NAME(at)(w + FFT_GROUP)};
    if (g) e = NAME(times)(e, g + 2 * k);
    y[k * blocks] = NAME(times_each)(x[k], e);
  }
}

static TARGET void NAME(rows)(const struct plaitk_fft *f, const void *middle, int64_t first, void *out, int64_t step,
                              int64_t imag, double scale, void *scratch) {
  const struct plaitk_fft_plan *p = f->plan;
  int64_t lanes = p->n1 - first < LANES ? p->n1 - first : LANES, blocks = (p->n2 + LANES - 1) / LANES;
  ROW *x = scratch;
  const ROW *q[LANES];
  T *to[LANES];
  for (int l = 0; l < LANES; l++) {
    int64_t k = first + (l < lanes ? l : lanes - 1);
    q[l] = (const ROW *)middle + k * blocks, to[l] = (T *)out + k * step;
  }
  for (int64_t b = 0; b < blocks; b++) {
    V re[LANES], im[LANES];
    for (int l = 0; l < LANES; l++) re[l] = q[l][b].re;
    NAME(transpose)(re);
    for (int l = 0; l < LANES; l++) im[l] = q[l][b].im;
    NAME(transpose)(im);
    const int32_t *order = p->second.order + b * LANES;
    int64_t count = p->n2 - b * LANES;
    for (int j = 0; j < LANES && j < count; j++) x[order[j]] = (ROW){re[j], im[j]};
  }
  if (p->second.ends && lanes == LANES && imag == 1 && NAME(adjacent)(to, 2)) {
    SINK sink = {.out = to[0], .scale = (T)scale, .step = p->n1 * step, .swap = NAME(swaps)(f)};
    NAME(transform)(&p->second, x, NULL, &sink);
    return;
  }
  NAME(transform)(&p->second, x, NULL, NULL);
  NAME(store)(x, p->n2, to, lanes, p->n1 * step, imag, (T)scale, (T)scale, NAME(swaps)(f));
}

// separate and join work on a vector of elements and the one opposite. The last vector begins early enough to be full, and
// element 0 and those of short lines go one by one.
static TARGET void NAME(separate)(const struct plaitk_fft *f, const void *points, int64_t first, int64_t last, void *out,
                                  int64_t step) {
  const T *z = points, *w = f->plan->halves;
  T *y = out, scale = (T)f->scale, imag_scale = f->inverse ? -scale : scale;
  int64_t m = f->plan->points, k = first;
  if (!w) {
    for (; k < last; k++) y[k * step] = z[2 * k] * scale, y[k * step + 1] = z[2 * k + 1] * imag_scale;
    return;
  }
  while (k < last) {
    ROW other, a;
    if (step == 2 && k > 0 && last - first > LANES) {
      k = k + LANES < last ? k : last - LANES;
      a = NAME(separated)(NAME(side_by_side)(z + 2 * k), NAME(falling)(z + 2 * (m - k)), NAME(side_by_side)(w + 2 * k), &other);
      NAME(put_falling)(y + 2 * (m - k), NAME(scaled)(other, scale, imag_scale));
      NAME(put_side_by_side)(y + 2 * k, NAME(scaled)(a, scale, imag_scale));
      k += LANES;
    } else {
      a = NAME(separated)(NAME(number)(z + 2 * k, 1), NAME(number)(z + 2 * (k ? m - k : 0), 1), NAME(number)(w + 2 * k, 1), &other);
      NAME(put_number)(y + (m - k) * step, NAME(scaled)(other, scale, imag_scale));
      NAME(put_number)(y + k * step, NAME(scaled)(a, scale, imag_scale));
      k++;
    }
  }
}

static TARGET void NAME(join)(const struct plaitk_fft *f, const void *in, int64_t step, int64_t first, int64_t last,
                              void *points) {
  const T *x = in, *w = f->plan->halves, sign = f->inverse ? (T)1 : (T)-1;
  T *z = points;
  int64_t m = f->plan->points, k = first;
  if (!w) {
    for (; k < last; k++) {
      const T *a = x + k * step;
      T im = k ? a[1] * sign : 0;
      z[2 * k] = a[0], z[2 * k + 1] = im;
      if (k) z[2 * (m - k)] = a[0], z[2 * (m - k) + 1] = -im;
    }
    return;
  }
  while (k < last) {
    ROW other, a;
    if (step == 2 && k > 0 && last - first > LANES) {
      k = k + LANES < last ? k : last - LANES;
      a = NAME(joined)(NAME(scaled)(NAME(side_by_side)(x + 2 * k), 1, sign), NAME(scaled)(NAME(falling)(x + 2 * (m - k)), 1, sign),
                       NAME(conjugate)(NAME(side_by_side)(w + 2 * k)), &other);
      NAME(put_falling)(z + 2 * (m - k), other);
      NAME(put_side_by_side)(z + 2 * k, a);
      k += LANES;
    } else {
      ROW e = NAME(number)(x + k * step, sign), o = NAME(number)(x + (m - k) * step, sign);
      if (k == 0) e.im = o.im = (V){0};
      a = NAME(joined)(e, o, NAME(number)(w + 2 * k, -1), &other);
      if (k) NAME(put_number)(z + 2 * (m - k), other);
      NAME(put_number)(z + 2 * k, a);
      k++;
    }
  }
}

// elements reads the elements of a line from p on: `count` up to LANES.
INLINE ROW NAME(elements)(const T *p, int64_t step, int64_t imag, int64_t count) {
  ROW a = {{0}, {0}};
  if (count >= LANES && step == 2 && imag == 1) return NAME(side_by_side)(p);
  if (count >= LANES && step == 1 && imag == FFT_REAL) return (ROW){NAME(at)(p), a.im};
  for (int64_t j = 0; j < LANES && j < count; j++) {
    a.re[j] = p[j * step];
    if (imag != FFT_REAL) a.im[j] = p[j * step + imag];
  }
  return a;
}

INLINE void NAME(put_elements)(T *p, int64_t step, int64_t imag, int64_t count, ROW a) {
  if (count >= LANES && step == 2 && imag == 1) {
    NAME(put_side_by_side)(p, a);
    return;
  }
  if (count >= LANES && step == 1 && imag == FFT_REAL) {
    NAME(to)(p, a.re);
    return;
  }
  for (int64_t j = 0; j < LANES && j < count; j++) {
    p[j * step] = a.re[j];
    if (imag != FFT_REAL) p[j * step + imag] = a.im[j];
  }
}

static TARGET void NAME(modulate)(const struct plaitk_fft *f, const void *in, int64_t step, int64_t imag, int64_t first,
                                  int64_t last, void *product) {
  const struct plaitk_fft_plan *p = f->plan;
  const T *x = in, *w = p->chirp;
  T *y = product;
  for (int64_t j = first; j < last; j += LANES) {
    ROW a = NAME(elements)(x + j * step, step, imag, p->points - j), c = NAME(elements)(w + 2 * j, 2, 1, p->points - j);
    a = NAME(times_each)(NAME(swaps)(f) ? NAME(swapped)(a) : a, c);
    NAME(put_elements)(y + 2 * j, 2, 1, last - j, a);
  }
}

// The two transforms are forward ones. The second goes back: its input is swapped here, and its output in demodulate.
static TARGET void NAME(filter)(const struct plaitk_fft *f, int64_t first, int64_t last, void *product) {
  const T *w = f->plan->filter;
  T *y = product;
  for (int64_t j = first; j < last; j += LANES) {
    ROW a = NAME(times_each)(NAME(elements)(y + 2 * j, 2, 1, last - j), NAME(elements)(w + 2 * j, 2, 1, last - j));
    NAME(put_elements)(y + 2 * j, 2, 1, last - j, NAME(swapped)(a));
  }
}

static TARGET void NAME(demodulate)(const struct plaitk_fft *f, const void *product, int64_t first, int64_t last, void *out,
                                    int64_t step, int64_t imag, double scale) {
  const T *x = product, *w = f->plan->chirp;
  T *y = out;
  for (int64_t j = first; j < last; j += LANES) {
    ROW a = NAME(swapped)(NAME(elements)(x + 2 * j, 2, 1, last - j));
    a = NAME(scaled)(NAME(times_each)(a, NAME(elements)(w + 2 * j, 2, 1, last - j)), (T)scale, (T)scale);
    NAME(put_elements)(y + j * step, step, imag, last - j, NAME(swaps)(f) ? NAME(swapped)(a) : a);
  }
}
