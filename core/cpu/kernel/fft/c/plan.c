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

// split_of returns the factor n1 for which n1 * n2 = n are nearest to each other, or 0 if none is worth it.
static int64_t split_of(int64_t n) {
  for (int64_t a = (int64_t)sqrt((double)n) + 1; a >= 4; a--) {
    if (n % a == 0 && n / a >= 4) return a;
  }
  return 0;
}

static int plan(struct plaitk_fft_plan *p, struct carver *mem, int64_t split) {
  int64_t size = 2 * plait_dtype_size(p->dtype);
  p->n1 = split ? split_of(p->points) : 0;
  if (p->n1 == 0) {
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
  plan(p, &mem, split);
  return p;
}

void plaitk_fft_free(struct plaitk_fft_plan *p) {
  free(p->memory);
  free(p);
}
