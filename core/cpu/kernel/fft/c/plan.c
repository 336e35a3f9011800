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

// number writes x as element i of a table.
static void number(void *table, int64_t dtype, int64_t i, double x) {
  if (dtype == PLAIT_F64) ((double *)table)[i] = x;
  else ((float *)table)[i] = (float)x;
}

// put writes the k-th power of exp(-2 pi i / n) into a table: its parts become elements re and im.
static void put(void *table, int64_t dtype, int64_t re, int64_t im, int64_t k, int64_t n) {
  double c, s;
  root(k % n, n, &c, &s);
  number(table, dtype, re, c), number(table, dtype, im, -s);
}

// put_next writes a power behind those of a table whose parts are side by side.
static void put_next(void *table, int64_t dtype, int64_t *count, int64_t k, int64_t n) {
  put(table, dtype, 2 * *count, 2 * *count + 1, k, n);
  ++*count;
}

// factor writes the radices of n, which has no factor that is too large, and returns their number.
static int factor(int64_t n, int32_t *radix) {
  int count = 0;
  for (int twos = __builtin_ctzll((uint64_t)n), last = 0; twos > 0; twos -= last, n >>= last) {
    // As few passes as can be, of nearly the same radix; the first, which does not multiply rows, has the largest.
    int passes = (twos + 3) / 4;
    last = (twos + passes - 1) / passes;
    radix[count++] = 1 << last;
  }
  for (int32_t r = 3; n > 1; r += 2) {
    while (n % r == 0) radix[count++] = r, n /= r;
  }
  if (count == 0) radix[count++] = 1;
  return count;
}

// roots_of returns how many roots of its order a pass needs.
static int64_t roots_of(int32_t radix) { return fft_generic(radix) ? radix : 0; }

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

static void plan_rows(struct fft_plan *p, struct carver *mem, int64_t n, int64_t dtype) {
  p->n = n;
  p->passes = factor(n, p->radix);
  int64_t size = 2 * plait_dtype_size(dtype), count = 0, m = 1;
  for (int i = 0; i < p->passes; m *= p->radix[i++]) count += roots_of(p->radix[i]) + (i ? m * (p->radix[i] - 1) : 0);
  int32_t first = p->radix[0], last = p->radix[p->passes - 1];
  p->ends = first % 4 == 0 && last % 4 == 0 && n <= FFT_MAX_ENDS;
  int32_t *order = carve(mem, n * (int64_t)sizeof *order), *element = carve(mem, n * (int64_t)sizeof *element);
  void *twiddles = carve(mem, count * size);
  p->order = order, p->element = element, p->twiddles = twiddles;
  if (!order) return;
  for (int64_t i = 0; i < n; i++) {
    int64_t rest = i, row = 0, below = n;
    for (int pass = p->passes - 1; pass >= 0; pass--) {
      below /= p->radix[pass];
      row += rest % p->radix[pass] * below;
      rest /= p->radix[pass];
    }
    order[i] = (int32_t)row, element[row] = (int32_t)i;
  }
  m = 1, count = 0;
  for (int i = 0; i < p->passes; m *= p->radix[i++]) {
    for (int j = 0; j < roots_of(p->radix[i]); j++) put_next(twiddles, dtype, &count, j, p->radix[i]);
    for (int64_t k = 0; i && k < m; k++) {
      for (int j = 1; j < p->radix[i]; j++) put_next(twiddles, dtype, &count, j * k, m * p->radix[i]);
    }
  }
}

static int64_t padded(int64_t n) { return (n + FFT_GROUP - 1) / FFT_GROUP * FFT_GROUP; }

// split_of returns the factor n1 for which lanes are fullest, then that for which n1 * n2 = n are nearest to each other, or 0 if
// none is worth it. *lanes becomes how many both passes have, for each point.
static int64_t split_of(int64_t n, double *lanes) {
  int64_t best = 0, root = (int64_t)sqrt((double)n) + 1;
  for (int64_t a = root; a >= 4 && a >= root / 8; a--) {
    int64_t b = n / a;
    double used = (double)(a * padded(b) + b * padded(a)) / (double)n;
    if (n % a == 0 && b >= 4 && (best == 0 || used < 0.98 * *lanes)) best = a, *lanes = used;
  }
  return best;
}

// convolved returns the length of the convolution that transforms n points fastest, or 0 for none. Few lines fill the lanes of
// a convolution, but not always those of a long butterfly.
static int64_t convolved(int64_t n, int64_t split) {
  double lanes;
  int64_t most = FFT_MAX_RADIX;
  if (split == FFT_SPLIT) most = split_of(n, &lanes) == 0 ? FFT_MAX_RADIX_FEW : lanes > FFT_FULL ? FFT_MAX_RADIX_SPLIT : most;
  int64_t rest = n, largest = 1;
  for (int64_t r = 2; rest > 1; r++) {
    for (; rest % r == 0; rest /= r) largest = r;
    if (r * r > rest && rest > 1) largest = rest, rest = 1;
  }
  if (largest <= most) return 0;
  int64_t best = 0;
  double least = 0;
  for (int64_t m = padded(2 * n - 1); m < 4 * n; m += FFT_GROUP) {
    for (rest = m; rest % 2 == 0;) rest /= 2;
    while (rest % 3 == 0) rest /= 3;
    while (rest % 5 == 0) rest /= 5;
    if (rest != 1 || split_of(m, &lanes) == 0) continue;
    double cost = (double)m * (lanes + 1);
    if (best == 0 || cost < least) best = m, least = cost;
    if (best && m > best + best / 4) break;
  }
  return best;
}

// plan_filter writes the transform of the filter of a convolution, which it computes in double precision.
static int plan_filter(const struct plaitk_fft_plan *p, void *filter) {
  struct plaitk_fft f = {.plan = plaitk_fft_new(p->m, PLAIT_F64, 0, FFT_SPLIT), .in_step = 2, .out_step = 2, .lines = 1};
  double *line = calloc((size_t)p->m, 2 * sizeof *line);
  if (f.plan) f.scratch = aligned_alloc(64, (size_t)(plaitk_fft_scratch(NULL, &f) + 63) / 64 * 64);
  int done = line && f.scratch;
  if (done) {
    for (int64_t j = 0; j < p->points; j++) {
      double *at = line + 2 * j, *mirrored = line + 2 * ((p->m - j) % p->m);
      root(j * j % (2 * p->points), 2 * p->points, &at[0], &at[1]);
      mirrored[0] = at[0], mirrored[1] = at[1];
    }
    f.in = f.out = (char *)line;
    f.scale = 1.0 / (double)p->m;
    plaitk_fft_run(NULL, &f);
    for (int64_t i = 0; i < 2 * p->m; i++) number(filter, p->dtype, i, line[i]);
  }
  free(f.scratch);
  free(line);
  if (f.plan) plaitk_fft_free((struct plaitk_fft_plan *)f.plan);
  return done;
}

static int plan_convolution(struct plaitk_fft_plan *p, struct carver *mem, int64_t size) {
  void *chirp = carve(mem, p->points * size), *filter = carve(mem, p->m * size);
  p->chirp = chirp, p->filter = filter;
  if (!chirp) return 1;
  for (int64_t j = 0; j < p->points; j++) put(chirp, p->dtype, 2 * j, 2 * j + 1, j * j % (2 * p->points), 2 * p->points);
  return plan_filter(p, filter);
}

// plan_between writes the powers by which a split line is multiplied between its two passes.
static void plan_between(struct plaitk_fft_plan *p, struct carver *mem, int64_t size) {
  int64_t groups = (p->n2 + FFT_GROUP - 1) / FFT_GROUP, whole = p->points > FFT_MAX_TABLE ? 1 : groups;
  void *in_group = carve(mem, whole * p->n1 * FFT_GROUP * size);
  void *of_group = whole < groups ? carve(mem, groups * p->n1 * size) : NULL;
  p->in_group = in_group, p->of_group = of_group;
  for (int64_t i = 0; in_group && i < whole * p->n1; i++) {
    for (int64_t j = 0; j < FFT_GROUP; j++) {
      int64_t at = 2 * i * FFT_GROUP + j, k2 = i / p->n1 * FFT_GROUP + j;
      put(in_group, p->dtype, at, at + FFT_GROUP, i % p->n1 * k2, p->points);
    }
  }
  for (int64_t g = 0; of_group && g < groups; g++) {
    for (int64_t k = 0, i = g * p->n1; k < p->n1; k++, i++) put(of_group, p->dtype, 2 * i, 2 * i + 1, k * g * FFT_GROUP, p->points);
  }
}

static int plan(struct plaitk_fft_plan *p, struct carver *mem) {
  int64_t size = 2 * plait_dtype_size(p->dtype);
  if (p->m) {
    if (!plan_convolution(p, mem, size)) return 0;
  } else if (p->n1) {
    plan_rows(&p->first, mem, p->n1, p->dtype);
    plan_rows(&p->second, mem, p->n2, p->dtype);
    plan_between(p, mem, size);
  } else {
    plan_rows(&p->whole, mem, p->points, p->dtype);
  }
  if (p->real && p->n % 2 == 0) {
    void *halves = carve(mem, (p->points / 2 + 1) * size);
    p->halves = halves;
    for (int64_t k = 0; halves && k <= p->points / 2; k++) put(halves, p->dtype, 2 * k, 2 * k + 1, k, p->n);
  }
  return 1;
}

struct plaitk_fft_plan *plaitk_fft_new(int64_t n, int64_t dtype, int64_t real, int64_t split) {
  struct plaitk_fft_plan *p = calloc(1, sizeof *p);
  if (!p) return NULL;
  p->n = n, p->dtype = (int32_t)dtype, p->real = (int32_t)real;
  p->points = real && n % 2 == 0 ? n / 2 : n;
  p->m = convolved(p->points, split);
  double lanes = 0;
  if (p->m) {
    p->convolution = plaitk_fft_new(p->m, dtype, 0, FFT_SPLIT);
  } else if (split != FFT_WHOLE) {
    p->n1 = split_of(p->points, &lanes);
    if (split == FFT_SPLIT_BINARY && (p->points & (p->points - 1)) != 0) p->n1 = 0;
    if (p->n1) p->n2 = p->points / p->n1;
  }
  struct carver mem = {0};
  if ((p->m && !p->convolution) || !plan(p, &mem) || !(p->memory = aligned_alloc(64, (size_t)mem.bytes))) {
    plaitk_fft_free(p);
    return NULL;
  }
  p->bytes = mem.bytes + (p->convolution ? p->convolution->bytes : 0);
  mem = (struct carver){p->memory, 0};
  if (plan(p, &mem)) return p;
  plaitk_fft_free(p);
  return NULL;
}

void plaitk_fft_free(struct plaitk_fft_plan *p) {
  if (p->convolution) plaitk_fft_free(p->convolution);
  free(p->memory);
  free(p);
}
