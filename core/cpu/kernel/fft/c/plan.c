#include <math.h>
#include <stdlib.h>

#include "fft.h"

// root sets c and s to the cosine and sine of 2 pi k / n, for 0 <= k < n. The angle is reduced to an eighth of the
// circle in integers, so that the result has the accuracy of cos and sin near 0.
static void root(int64_t k, int64_t n, double *c, double *s) {
  const double tau = 6.283185307179586476925287;
  int64_t quarter = (8 * k / n + 1) / 2;  // the nearest
  double angle = tau * ((double)(4 * k - quarter * n) / (4.0 * (double)n)), a = cos(angle), b = sin(angle);
  switch (quarter % 4) {
    case 0: *c = a, *s = b; break;
    case 1: *c = -b, *s = a; break;
    case 2: *c = -a, *s = -b; break;
    default: *c = b, *s = -a; break;
  }
}

// put writes the k-th power of exp(-2 pi i / n) as complex number i of a table.
static void put(void *table, int64_t dtype, int64_t i, int64_t k, int64_t n) {
  double c, s;
  root(k % n, n, &c, &s);
  if (dtype == PLAIT_F64) {
    ((double *)table)[2 * i] = c, ((double *)table)[2 * i + 1] = -s;
  } else {
    ((float *)table)[2 * i] = (float)c, ((float *)table)[2 * i + 1] = (float)-s;
  }
}

// factor writes the radices of n and returns their number, or 0 if a factor is too large.
static int factor(int64_t n, int32_t *radix) {
  int count = 0;
  while (n % 4 == 0) radix[count++] = 4, n /= 4;
  if (n % 2 == 0) radix[count++] = 2, n /= 2;
  for (int32_t r = 3; n > 1; r += 2) {
    if (r > FFT_MAX_RADIX) return 0;
    while (n % r == 0) radix[count++] = r, n /= r;
  }
  if (count == 0) radix[count++] = 1;
  return count;
}

// roots_of returns how many roots of its order a pass needs.
static int64_t roots_of(int32_t radix) { return radix > FFT_UNROLLED ? radix : 0; }

// Memory is carved from one block: a first round counts its bytes, a second one writes.
struct carver {
  char *at;
  int64_t bytes;
};

static void *carve(struct carver *c, int64_t bytes) {
  void *p = c->at ? c->at + c->bytes : NULL;
  c->bytes += (bytes + 63) / 64 * 64;
  return p;
}

static int plan_rows(struct fft_plan *p, struct carver *mem, int64_t n, int64_t dtype) {
  p->n = n;
  p->passes = factor(n, p->radix);
  if (p->passes == 0) return 0;
  int64_t size = 2 * plait_dtype_size(dtype), count = 0, m = 1;
  for (int i = 0; i < p->passes; m *= p->radix[i++]) count += roots_of(p->radix[i]) + (i ? m * (p->radix[i] - 1) : 0);
  int32_t *order = carve(mem, n * (int64_t)sizeof *order);
  void *twiddles = carve(mem, count * size);
  p->order = order, p->twiddles = twiddles;
  if (!order) return 1;
  for (int64_t i = 0; i < n; i++) {
    int64_t rest = i, row = 0, below = n;
    for (int pass = p->passes - 1; pass >= 0; pass--) {
      below /= p->radix[pass];
      row += rest % p->radix[pass] * below;
      rest /= p->radix[pass];
    }
    order[i] = (int32_t)row;
  }
  m = 1, count = 0;
  for (int i = 0; i < p->passes; m *= p->radix[i++]) {
    for (int j = 0; j < roots_of(p->radix[i]); j++) put(twiddles, dtype, count++, j, p->radix[i]);
    for (int64_t k = 0; i && k < m; k++) {
      for (int j = 1; j < p->radix[i]; j++) put(twiddles, dtype, count++, j * k, m * p->radix[i]);
    }
  }
  return 1;
}

// convolved returns the length of the convolution that transforms n points fastest, or 0 for none.
static int64_t convolved(int64_t n) {
  if (n > FFT_MAX_CONVOLVED) return 0;
  int64_t rest = n, largest = 1;
  for (int64_t r = 2; rest > 1; r++) {
    for (; rest % r == 0; rest /= r) largest = r;
  }
  if (largest <= FFT_MAX_RADIX) return 0;
  for (int64_t m = (2 * n + 2) / 4 * 4;; m += 4) {
    for (rest = m; rest % 2 == 0;) rest /= 2;
    while (rest % 3 == 0) rest /= 3;
    while (rest % 5 == 0) rest /= 5;
    if (rest == 1) return m;
  }
}

// plan_filter writes the transform of the filter of a convolution, which it computes in double precision.
static int plan_filter(struct plaitk_fft_plan *p, void *filter) {
  const struct fft_kernels *k = fft_kernels_of(PLAIT_F64);
  struct plaitk_fft_plan *q = plaitk_fft_new(p->m, PLAIT_F64, 0, 0);
  double *line = calloc((size_t)p->m, 2 * sizeof *line);
  void *scratch = aligned_alloc(64, (size_t)((2 * p->m + 2) * k->lanes) * 2 * sizeof *line);
  int done = q && line && scratch;
  if (done) {
    for (int64_t j = 0; j < p->points; j++) {
      double *at = line + 2 * j, *mirrored = line + 2 * ((p->m - j) % p->m);
      root(j * j % (2 * p->points), 2 * p->points, &at[0], &at[1]);
      mirrored[0] = at[0], mirrored[1] = at[1];
    }
    struct plaitk_fft f = {.plan = q, .in = (char *)line, .out = (char *)line, .in_step = 2, .out_step = 2, .lines = 1};
    f.scale = 1.0 / (double)p->m;
    k->lines(&f, 0, scratch);
    for (int64_t i = 0; i < 2 * p->m; i++) {
      if (p->dtype == PLAIT_F64) ((double *)filter)[i] = line[i];
      else ((float *)filter)[i] = (float)line[i];
    }
  }
  free(scratch);
  free(line);
  if (q) plaitk_fft_free(q);
  return done;
}

static int plan_convolution(struct plaitk_fft_plan *p, struct carver *mem, int64_t size) {
  if (!plan_rows(&p->whole, mem, p->m, p->dtype)) return 0;
  void *chirp = carve(mem, p->points * size), *filter = carve(mem, p->m * size);
  p->chirp = chirp, p->filter = filter;
  if (!chirp) return 1;
  for (int64_t j = 0; j < p->points; j++) put(chirp, p->dtype, j, j * j % (2 * p->points), 2 * p->points);
  return plan_filter(p, filter);
}

// split_of returns the factor n1 for which n1 * n2 = n are nearest to each other, or 0 if none is worth it.
static int64_t split_of(int64_t n) {
  for (int64_t a = (int64_t)sqrt((double)n) + 1; a >= 4; a--) {
    if (n % a == 0 && n / a >= 4) return a;
  }
  return 0;
}

static int plan(struct plaitk_fft_plan *p, struct carver *mem, int64_t split) {
  int64_t size = 2 * plait_dtype_size(p->dtype);
  p->m = convolved(p->points);
  p->n1 = split && !p->m ? split_of(p->points) : 0;
  if (p->m) {
    if (!plan_convolution(p, mem, size)) return 0;
  } else if (p->n1 == 0) {
    if (!plan_rows(&p->whole, mem, p->points, p->dtype)) return 0;
  } else {
    p->n2 = p->points / p->n1;
    int64_t groups = (p->n2 + FFT_GROUP - 1) / FFT_GROUP;
    if (!plan_rows(&p->first, mem, p->n1, p->dtype) || !plan_rows(&p->second, mem, p->n2, p->dtype)) return 0;
    void *in_group = carve(mem, p->n1 * FFT_GROUP * size), *of_group = carve(mem, groups * p->n1 * size);
    p->in_group = in_group, p->of_group = of_group;
    for (int64_t k = 0; in_group && k < p->n1; k++) {
      for (int64_t j = 0; j < FFT_GROUP; j++) put(in_group, p->dtype, k * FFT_GROUP + j, k * j, p->points);
      for (int64_t g = 0; g < groups; g++) put(of_group, p->dtype, g * p->n1 + k, k * g * FFT_GROUP, p->points);
    }
  }
  if (p->real && p->n % 2 == 0) {
    void *halves = carve(mem, (p->points / 2 + 1) * size);
    p->halves = halves;
    for (int64_t k = 0; halves && k <= p->points / 2; k++) put(halves, p->dtype, k, k, p->n);
  }
  return 1;
}

struct plaitk_fft_plan *plaitk_fft_new(int64_t n, int64_t dtype, int64_t real, int64_t split) {
  struct plaitk_fft_plan *p = calloc(1, sizeof *p);
  if (!p) return NULL;
  p->n = n, p->dtype = (int32_t)dtype, p->real = (int32_t)real;
  p->points = real && n % 2 == 0 ? n / 2 : n;
  struct carver mem = {0};
  if (!plan(p, &mem, split) || !(p->memory = aligned_alloc(64, (size_t)mem.bytes))) {
    free(p);
    return NULL;
  }
  p->bytes = mem.bytes;
  mem = (struct carver){p->memory, 0};
  if (plan(p, &mem, split)) return p;
  plaitk_fft_free(p);
  return NULL;
}

void plaitk_fft_free(struct plaitk_fft_plan *p) {
  free(p->memory);
  free(p);
}
