// How states are initialised, merged and converted to results.
#include "reduction.h"

static void fill_double(void *p, double v, int64_t n) {
  for (int64_t i = 0; i < n; i++) ((double *)p)[i] = v;
}

static void fill_int(void *p, int64_t v, int64_t n) {
  for (int64_t i = 0; i < n; i++) ((int64_t *)p)[i] = v;
}

// What the state of an op holds.
enum kind { SUMS, COUNTS, PRODUCTS, MAXIMA, MINIMA, ARGMAXIMA, ARGMINIMA, MOMENTS, EXPONENTIALS };

static enum kind kind_of(const struct plaitk_reduction *r) {
  switch (r->op) {
  case REDUCE_ANY:
  case REDUCE_ALL:
  case REDUCE_COUNT:
    return COUNTS;
  case REDUCE_SUM:
  case REDUCE_MEAN:
    return plait_is_float(r->dtype) ? SUMS : COUNTS;
  case REDUCE_PROD:
    return PRODUCTS;
  case REDUCE_MAX:
  case REDUCE_NORMINF:
    return MAXIMA;
  case REDUCE_MIN:
  case REDUCE_NORMNINF:
    return MINIMA;
  case REDUCE_ARGMAX:
    return ARGMAXIMA;
  case REDUCE_ARGMIN:
    return ARGMINIMA;
  case REDUCE_VAR:
  case REDUCE_STD:
    return MOMENTS;
  case REDUCE_LOGSUMEXP:
    return EXPONENTIALS;
  default:
    return SUMS;
  }
}

void plaitk_reduction_init(const struct plaitk_reduction *r, struct state s, int64_t n) {
  bool f = plait_is_float(r->dtype);
  switch (kind_of(r)) {
  case SUMS:
    fill_double(s.a, 0, n);
    fill_double(s.b, 0, n);
    break;
  case COUNTS:
    fill_int(s.a, 0, n);
    break;
  case PRODUCTS:
    f ? fill_double(s.a, 1, n) : fill_int(s.a, 1, n);
    for (int64_t i = 1; r->pairs && i < n; i += 2) ((double *)s.a)[i] = 0;
    break;
  case MAXIMA: // |x| starts at 0, so that the norm of no elements is 0
    f ? fill_double(s.a, r->op == REDUCE_NORMINF ? 0 : -INFINITY, n) : fill_int(s.a, INT64_MIN, n);
    break;
  case MINIMA:
    f ? fill_double(s.a, INFINITY, n) : fill_int(s.a, INT64_MAX, n);
    break;
  case ARGMAXIMA:
  case ARGMINIMA:
    fill_int(s.a, 0, n);
    fill_int(s.b, -1, n);
    break;
  case MOMENTS:
    fill_double(s.a, 0, n);
    fill_double(s.b, 0, n);
    fill_double(s.c, 0, n);
    break;
  case EXPONENTIALS:
    fill_double(s.a, -INFINITY, n);
    fill_double(s.b, 0, n);
    break;
  }
}

#define EACH for (int64_t i = 0; i < n; i++)

static void merge_sums(struct state dst, struct state src, int64_t n) {
  double *a = dst.a, *b = dst.b;
  const double *x = src.a, *y = src.b;
  EACH {
    sum_add(a + i, b + i, x[i]);
    b[i] += y[i];
  }
}

static void merge_args(struct state dst, struct state src, int64_t n, bool is_float, bool max) {
  int64_t *index = dst.b;
  const int64_t *other = src.b;
  EACH {
    if (other[i] < 0) continue;
    bool beats = index[i] < 0, equal = false;
    if (!beats && is_float) {
      double a = ((double *)dst.a)[i], x = ((double *)src.a)[i];
      beats = (max ? x > a : x < a) || (x != x && a == a);
      equal = x == a || (x != x && a != a);
    } else if (!beats) {
      int64_t a = ((int64_t *)dst.a)[i], x = ((int64_t *)src.a)[i];
      beats = max ? x > a : x < a;
      equal = x == a;
    }
    if (beats || (equal && other[i] < index[i])) {
      memcpy((char *)dst.a + 8 * i, (char *)src.a + 8 * i, 8);
      index[i] = other[i];
    }
  }
}

static void merge_moments(struct state dst, struct state src, int64_t n) {
  double *count = dst.a, *mean = dst.b, *m2 = dst.c;
  const double *count2 = src.a, *mean2 = src.b, *more = src.c;
  EACH {
    if (count2[i] == 0) continue;
    double total = count[i] + count2[i], delta = mean2[i] - mean[i];
    if (count[i] == 0) {
      mean[i] = mean2[i];
      m2[i] = more[i];
    } else {
      mean[i] = merged_mean(mean[i], mean2[i], count2[i], total);
      m2[i] += more[i] + delta * delta * (count[i] * count2[i] / total);
    }
    count[i] = total;
  }
}

static void merge_exponentials(struct state dst, struct state src, int64_t n) {
  double *m = dst.a, *s = dst.b;
  const double *m2 = src.a, *s2 = src.b;
  EACH logsumexp_add(m + i, s + i, m2[i], s2[i]);
}

void plaitk_reduction_merge(const struct plaitk_reduction *r, struct state dst, struct state src, int64_t n) {
  bool f = plait_is_float(r->dtype);
  enum kind kind = kind_of(r);
  switch (kind) {
  case SUMS:
    merge_sums(dst, src, n);
    break;
  case COUNTS:
    EACH FLUSH_WRAP(dst, i, ((uint64_t *)src.a)[i]);
    break;
  case PRODUCTS:
    if (r->pairs) {
      const double *x = src.a;
      for (int64_t i = 0; i < n; i += 2) complex_multiply((double *)dst.a + i, x[i], x[i + 1]);
    } else if (f) {
      EACH FLUSH_PROD(dst, i, ((double *)src.a)[i]);
    } else {
      EACH FLUSH_IPROD(dst, i, ((uint64_t *)src.a)[i]);
    }
    break;
  case MAXIMA:
    if (f) {
      EACH FLUSH_FMAX(dst, i, ((double *)src.a)[i]);
    } else {
      EACH FLUSH_MAX(dst, i, ((int64_t *)src.a)[i]);
    }
    break;
  case MINIMA:
    if (f) {
      EACH FLUSH_FMIN(dst, i, ((double *)src.a)[i]);
    } else {
      EACH FLUSH_MIN(dst, i, ((int64_t *)src.a)[i]);
    }
    break;
  case ARGMAXIMA:
  case ARGMINIMA:
    merge_args(dst, src, n, f, kind == ARGMAXIMA);
    break;
  case MOMENTS:
    merge_moments(dst, src, n);
    break;
  case EXPONENTIALS:
    merge_exponentials(dst, src, n);
    break;
  }
}

#define STORE(T, EXPR) \
  EACH((T *)out)[(offset + i * stride)] = (T)(EXPR)

#define STORE_INTS(T) STORE(T, (int64_t)v[i])
#define STORE_EACH_INT                                             \
  case PLAIT_BOOL: STORE(uint8_t, v[i] != 0); break;               \
  case PLAIT_I8:                                                   \
  case PLAIT_U8: STORE_INTS(uint8_t); break;                       \
  case PLAIT_I16:                                                  \
  case PLAIT_U16: STORE_INTS(uint16_t); break;                     \
  case PLAIT_I32:                                                  \
  case PLAIT_U32: STORE_INTS(uint32_t); break;                     \
  case PLAIT_I64:                                                  \
  case PLAIT_U64: STORE_INTS(int64_t); break;

PLAIT_CLONES static void store_floats(float *restrict out, const double *v, int64_t n) {
  SIMD EACH out[i] = (float)v[i];
}

static void store_doubles(void *out, int dtype, int64_t offset, int64_t stride, const double *v, int64_t n) {
  switch (dtype) {
    STORE_EACH_INT
  case PLAIT_F16:
    STORE(uint16_t, plait_f32_to_f16((float)v[i]));
    break;
  case PLAIT_BF16:
    STORE(uint16_t, plait_f32_to_bf16((float)v[i]));
    break;
  case PLAIT_F32:
    if (stride == 1) {
      store_floats((float *)out + offset, v, n);
    } else {
      STORE(float, v[i]);
    }
    break;
  default:
    STORE(double, v[i]);
  }
}

static void store_ints(void *out, int dtype, int64_t offset, int64_t stride, const int64_t *v, int64_t n) {
  switch (dtype) {
    STORE_EACH_INT
  default: {
    double f[REDUCE_WIDTH];
    EACH f[i] = (double)v[i];
    store_doubles(out, dtype, offset, stride, f, n);
  }
  }
}

// The compensation of a sum that overflowed is NaN, and is ignored.
PLAIT_CLONES static void sum_values(const double *sum, const double *comp, double *v, int64_t n) {
  SIMD EACH v[i] = sum[i] + plait_vm_pick(comp[i] == comp[i], comp[i], 0);
}

static void store_moments(const struct plaitk_reduction *r, struct state s, int64_t n, int64_t offset, int64_t stride) {
  const double *mean = s.b, *m2 = s.c;
  double v[REDUCE_WIDTH];
  double divisor = fmax((double)r->reduced - r->param, 0);
  EACH {
    v[i] = m2[i] / divisor;
    if (r->op == REDUCE_STD) v[i] = sqrt(v[i]);
  }
  if (r->out != NULL) store_doubles(r->out, r->out_dtype, offset, stride, v, n);
  if (r->out2 == NULL) return;
  EACH v[i] = r->reduced == 0 ? NAN : mean[i];
  store_doubles(r->out2, r->out_dtype, offset, stride, v, n);
}

static void store_sums(const struct plaitk_reduction *r, struct state s, int64_t n, int64_t offset, int64_t stride) {
  double v[REDUCE_WIDTH];
  sum_values(s.a, s.b, v, n);
  switch (r->op) {
  case REDUCE_MEAN:
    EACH v[i] /= (double)r->reduced;
    break;
  case REDUCE_NORM2:
    EACH v[i] = sqrt(v[i]);
    break;
  case REDUCE_NORMP:
    EACH v[i] = pow(v[i], 1 / r->param);
    break;
  }
  store_doubles(r->out, r->out_dtype, offset, stride, v, n);
}

static void store_counts(const struct plaitk_reduction *r, struct state s, int64_t n, int64_t offset, int64_t stride) {
  const int64_t *a = s.a;
  if (r->op == REDUCE_MEAN) {
    double v[REDUCE_WIDTH];
    EACH v[i] = (double)a[i] / (double)r->reduced;
    store_doubles(r->out, r->out_dtype, offset, stride, v, n);
    return;
  }
  int64_t v[REDUCE_WIDTH];
  EACH {
    v[i] = a[i];
    if (r->op == REDUCE_ANY) v[i] = a[i] > 0;
    if (r->op == REDUCE_ALL) v[i] = a[i] == r->reduced;
  }
  store_ints(r->out, r->out_dtype, offset, stride, v, n);
}

void plaitk_reduction_store(const struct plaitk_reduction *r, struct state s, int64_t n, int64_t offset, int64_t stride) {
  switch (kind_of(r)) {
  case SUMS:
    store_sums(r, s, n, offset, stride);
    return;
  case COUNTS:
    store_counts(r, s, n, offset, stride);
    return;
  case MOMENTS:
    store_moments(r, s, n, offset, stride);
    return;
  case EXPONENTIALS: {
    const double *m = s.a, *sum = s.b;
    double v[REDUCE_WIDTH];
    EACH v[i] = m[i] + log(sum[i]);
    store_doubles(r->out, r->out_dtype, offset, stride, v, n);
    return;
  }
  case ARGMAXIMA:
  case ARGMINIMA:
    if (r->out2 != NULL) store_ints(r->out2, PLAIT_I64, offset, stride, s.b, n);
    if (r->out == NULL) return;
    break;
  default:
    break;
  }
  if (plait_is_float(r->dtype)) {
    store_doubles(r->out, r->out_dtype, offset, stride, s.a, n);
  } else {
    int64_t *a = s.a;
    if (r->dtype == PLAIT_U64 && r->op != REDUCE_PROD) EACH a[i] = PLAIT_ORDERED(a[i]);
    store_ints(r->out, r->out_dtype, offset, stride, s.a, n);
  }
}
