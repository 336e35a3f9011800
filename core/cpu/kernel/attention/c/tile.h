// Attention of one tile, for one element type T and one instruction set: TARGET, vectors of VECTOR bytes, at most NV of
// them per micro-kernel. Tiles are transposed, [key][query] and [dim][query], so that the lanes of a vector are
// queries. Then maxima and sums over keys are elementwise, and keys and values need no packing.
#ifdef FN

// Number of queries in a tile.
#define LANES ((int64_t)(256 / sizeof(T)))
// Products that one accumulator sums.
#define CHAIN 64
// Exponentials that one accumulator sums.
#define SUMMED 16
// Number of elements in a vector.
#define WIDTH ((int64_t)(VECTOR / sizeof(T)))

typedef T FN(vec) __attribute__((vector_size(VECTOR), aligned(sizeof(T)), may_alias));

PLAIT_INLINE int64_t FN(pad)(int64_t n) { return (n + WIDTH - 1) / WIDTH * WIDTH; }

// Micro-kernel: c[i][j] (+)= sum over l of a[i*row + l*step] * b[l*ldb + j], for mr rows and nv vectors of j. It adds a
// partial sum to c every CHAIN steps, since the rounding error grows with the length of a sum.
PLAIT_INLINE TARGET void FN(micro)(const int mr, const int nv, const T *a, int64_t row, int64_t step, const T *b,
                                   int64_t ldb, T *c, int64_t ldc, int64_t k, bool add) {
  FN(vec) acc[4][4];
  do {
    int64_t steps = min64(k, CHAIN);
#pragma GCC unroll 4
    for (int i = 0; i < mr; i++) {
#pragma GCC unroll 4
      for (int j = 0; j < nv; j++) acc[i][j] = (FN(vec)){0};
    }
    for (int64_t l = 0; l < steps; l++) {
      FN(vec) y[4];
#pragma GCC unroll 4
      for (int j = 0; j < nv; j++) y[j] = *(const FN(vec) *)(b + l * ldb + j * WIDTH);
#pragma GCC unroll 4
      for (int i = 0; i < mr; i++) {
        T x = a[i * row + l * step];
#pragma GCC unroll 4
        for (int j = 0; j < nv; j++) acc[i][j] += x * y[j];
      }
    }
#pragma GCC unroll 4
    for (int i = 0; i < mr; i++) {
#pragma GCC unroll 4
      for (int j = 0; j < nv; j++) {
        FN(vec) *to = (FN(vec) *)(c + i * ldc + j * WIDTH);
        if (add) acc[i][j] += *to;
        *to = acc[i][j];
      }
    }
    add = true;
    a += steps * step;
    b += steps * ldb;
    k -= steps;
  } while (k > 0);
}

// The same for m rows and n columns, where n is a multiple of WIDTH. Rows of b and c have at least n elements.
static TARGET __attribute__((noinline)) void FN(gemm)(int64_t m, int64_t n, int64_t k, const T *a, int64_t row,
                                                      int64_t step, const T *b, int64_t ldb, T *c, int64_t ldc,
                                                      bool add) {
  for (int64_t j = 0; j < n;) {
    int64_t nv = (n - j) / WIDTH, i = 0;
    nv = nv >= NV ? NV : nv >= 2 ? 2 : 1;
    for (; i + 4 <= m; i += 4) {
      const T *ai = a + i * row;
      T *ci = c + i * ldc + j;
      if (nv == NV) FN(micro)(4, NV, ai, row, step, b + j, ldb, ci, ldc, k, add);
      else if (nv == 2) FN(micro)(4, 2, ai, row, step, b + j, ldb, ci, ldc, k, add);
      else FN(micro)(4, 1, ai, row, step, b + j, ldb, ci, ldc, k, add);
    }
    for (; i < m; i++) {
      const T *ai = a + i * row;
      T *ci = c + i * ldc + j;
      if (nv == NV) FN(micro)(1, NV, ai, row, step, b + j, ldb, ci, ldc, k, add);
      else if (nv == 2) FN(micro)(1, 2, ai, row, step, b + j, ldb, ci, ldc, k, add);
      else FN(micro)(1, 1, ai, row, step, b + j, ldb, ci, ldc, k, add);
    }
    j += nv * WIDTH;
  }
}

// t[d][q] = x[q][d] * scale. Lanes from n on are zeros.
static TARGET void FN(transpose_in)(const T *x, int64_t row, int64_t n, int64_t dim, int64_t lanes, T scale, T *t) {
  for (int64_t d = 0; d < dim; d++) {
    for (int64_t q = 0; q < n; q++) t[d * LANES + q] = x[q * row + d] * scale;
    for (int64_t q = n; q < lanes; q++) t[d * LANES + q] = 0;
  }
}

// x[q][d] = t[d][q] * scale[q]
static TARGET void FN(transpose_out)(const T *t, T *x, int64_t row, int64_t n, int64_t dim, const T *scale) {
  for (int64_t q = 0; q < n; q++) {
    for (int64_t d = 0; d < dim; d++) x[q * row + d] = t[d * LANES + q] * scale[q];
  }
}

// r[q][d] = x[q][d] * scale. Rows are padded with zeros.
static TARGET void FN(pack_rows)(const T *x, int64_t row, int64_t n, int64_t dim, int64_t ld, T scale, T *r) {
  for (int64_t q = 0; q < n; q++) {
    for (int64_t d = 0; d < dim; d++) r[q * ld + d] = x[q * row + d] * scale;
    for (int64_t d = dim; d < ld; d++) r[q * ld + d] = 0;
  }
}

// Applies the causal mask and the mask to the scores s of keys [key, key+keys) and queries [query, query+n).
static TARGET void FN(mask_tile)(const struct plaitk_attention *a, int64_t batch, int64_t head, int64_t key,
                                 int64_t keys, int64_t query, int64_t n, T *s) {
  if (a->causal) {
    for (int64_t k = 0; k < keys; k++) {
      int64_t hidden = key + k - query;
      for (int64_t q = 0; q < n && q < hidden; q++) s[k * LANES + q] = -(T)INFINITY;
    }
  }
  if (a->mask_dtype < 0) return;
  int64_t base = batch * a->mask_batch + head * a->mask_head + query * a->mask_query + key * a->mask_key;
  if (a->mask_query == 0) {
    for (int64_t k = 0; k < keys; k++) {
      T bias = (T)mask_value(a, base + k * a->mask_key);
      for (int64_t q = 0; q < n; q++) s[k * LANES + q] += bias;
    }
    return;
  }
  for (int64_t q = 0; q < n; q++) {
    int64_t at = base + q * a->mask_query, step = a->mask_key;
    if (a->mask_dtype == PLAIT_BOOL) {
      const uint8_t *m = (const uint8_t *)a->mask + at;
      for (int64_t k = 0; k < keys; k++) s[k * LANES + q] = m[k * step] ? s[k * LANES + q] : -(T)INFINITY;
    } else if (a->mask_dtype == ELEMENT_DTYPE) {
      const T *m = (const T *)a->mask + at;
      for (int64_t k = 0; k < keys; k++) s[k * LANES + q] += m[k * step];
    } else {
      for (int64_t k = 0; k < keys; k++) s[k * LANES + q] += (T)mask_value(a, at + k * step);
    }
  }
}

// Sets keep[k][q] to keep_scale or 0 at random.
static TARGET void FN(dropout_tile)(const struct plaitk_attention *a, int64_t batch, int64_t head, int64_t key,
                                    int64_t keys, int64_t query, int64_t lanes, T *keep) {
  uint64_t blocks = (uint64_t)((a->keys + 3) / 4), seed = a->seed, limit = a->keep_limit;
  uint64_t first = (uint64_t)((batch * a->all_heads + head) * a->queries + query) * blocks + a->offset;
  T scale = (T)a->keep_scale;
  for (int64_t k = 0; k < keys; k += 4) {
    uint64_t counter = first + (uint64_t)(key + k) / 4;
    uint32_t w[4][LANES];
#pragma omp simd
    for (int64_t q = 0; q < lanes; q++) {
      plait_philox(seed, counter + (uint64_t)q * blocks, &w[0][q], &w[1][q], &w[2][q], &w[3][q]);
    }
    for (int64_t i = 0; i < 4 && k + i < keys; i++) {
#pragma omp simd
      for (int64_t q = 0; q < lanes; q++) keep[(k + i) * LANES + q] = w[i][q] < limit ? scale : 0;
    }
  }
}

// z = x * y
static TARGET void FN(multiply)(T *z, const T *x, const T *y, int64_t keys, int64_t lanes) {
  for (int64_t k = 0; k < keys; k++) {
#pragma omp simd
    for (int64_t q = 0; q < lanes; q++) z[k * LANES + q] = x[k * LANES + q] * y[k * LANES + q];
  }
}

PLAIT_INLINE T *FN(head_of)(const struct plaitk_attention_view *v, int64_t batch, int64_t head) {
  return v->data ? (T *)v->data + batch * v->batch + head * v->head : NULL;
}

// A tile's queries are transposed once; they take as many bytes as `dim` elements of each lane.
#define OPERAND_BYTES(dim, vdim) (max64(1, dim) * LANES * (int64_t)sizeof(T))
#define SHARED FN

static TARGET void FN(take_queries)(const struct plaitk_attention *a, const T *q, int64_t n, int64_t lanes,
                                    char *operands) {
  FN(transpose_in)(q, a->q.row, n, a->dim, lanes, (T)a->scale, (T *)operands);
}

// s[k][q] = keys * queries
static TARGET void FN(scores)(const struct plaitk_attention *a, const T *k, int64_t keys, int64_t lanes,
                              char *operands, T *s) {
  FN(gemm)(keys, lanes, a->dim, k, a->k.row, 1, (const T *)operands, LANES, s, LANES, false);
}

// ot[d][q] += values * s
static TARGET void FN(weigh_values)(const struct plaitk_attention *a, const T *v, int64_t keys, int64_t lanes,
                                    char *operands, const T *s, T *ot) {
  (void)operands;
  FN(gemm)(a->value_dim, lanes, keys, v, 1, a->v.row, s, LANES, ot, LANES, true);
}

#define ELEMENT T
#include "forward.h"
#undef ELEMENT
#undef OPERAND_BYTES
#undef SHARED

// Computes the contributions of one split of the keys to all gradients, for one batch and key head.
static TARGET void FN(backward_split)(const struct job *j, int64_t batch, int64_t kv, int64_t split) {
  const struct plaitk_attention *a = j->a;
  int64_t dim = a->dim, vdim = a->value_dim, ld = FN(pad)(dim), vld = FN(pad)(vdim), group = a->heads / a->kv_heads;
  int64_t begin = split * j->split_keys, end = min64(a->keys, begin + j->split_keys);
  const T *kp = FN(head_of)(&a->k, batch, kv), *vp = FN(head_of)(&a->v, batch, kv);
  // Gradients of keys and values accumulate in the results, or in padded rows if the results' rows are not whole
  // vectors.
  T *dkp = FN(head_of)(&j->dk_sum, batch, kv), *dvp = FN(head_of)(&j->dv_sum, batch, kv);
  for (int64_t k = begin; k < end; k++) {
    if (dkp) memset(dkp + k * j->dk_sum.row, 0, (size_t)ld * sizeof(T));
    if (dvp) memset(dvp + k * j->dv_sum.row, 0, (size_t)vld * sizeof(T));
  }

  int64_t room = max64(1, ld) * LANES, vroom = max64(1, vld) * LANES;
  T qt[room] __attribute__((aligned(64))), qr[room] __attribute__((aligned(64)));
  T dot[vroom] __attribute__((aligned(64))), dor[vroom] __attribute__((aligned(64)));
  T dqt[room] __attribute__((aligned(64)));
  T p[KEYS * LANES] __attribute__((aligned(64))), dp[KEYS * LANES] __attribute__((aligned(64)));
  T keep[a->dropout ? KEYS * LANES : 1] __attribute__((aligned(64)));
  T lse[LANES], delta[LANES], scale[LANES];
  for (int64_t head = kv * group; head < (kv + 1) * group; head++) {
    for (int64_t query = 0; query < a->queries; query += LANES) {
      int64_t n = min64(LANES, a->queries - query), lanes = FN(pad)(n);
      int64_t limit = a->causal ? min64(end, query + n) : end;
      const T *qp = FN(head_of)(&a->q, batch, head) + query * a->q.row;
      const T *op = FN(head_of)(&j->o, batch, head) + query * j->o.row;
      const T *dop = FN(head_of)(&j->d_o, batch, head) + query * j->d_o.row;
      const T *saved = (const T *)j->lse + (batch * a->heads + head) * a->queries + query;
      FN(transpose_in)(qp, a->q.row, n, dim, lanes, (T)a->scale, qt);
      FN(transpose_in)(dop, j->d_o.row, n, vdim, lanes, 1, dot);
      if (dkp) FN(pack_rows)(qp, a->q.row, n, dim, ld, (T)a->scale, qr);
      if (dvp) FN(pack_rows)(dop, j->d_o.row, n, vdim, vld, 1, dor);
      memset(dqt, 0, sizeof dqt);
      for (int64_t q = 0; q < lanes; q++) {
        lse[q] = q < n ? saved[q] : (T)INFINITY;
        T s = 0;
        for (int64_t d = 0; q < n && d < vdim; d++) s += dop[q * j->d_o.row + d] * op[q * j->o.row + d];
        delta[q] = s;
        scale[q] = (T)a->scale;
      }
      for (int64_t key = begin; key < limit; key += KEYS) {
        int64_t keys = min64(KEYS, limit - key);
        const T *k0 = kp + key * a->k.row, *v0 = vp + key * a->v.row;
        FN(gemm)(keys, lanes, dim, k0, a->k.row, 1, qt, LANES, p, LANES, false);
        if (a->mask_dtype >= 0 || (a->causal && key + keys > query + 1)) {
          FN(mask_tile)(a, batch, head, key, keys, query, n, p);
        }
        for (int64_t k = 0; k < keys; k++) {
#pragma omp simd
          for (int64_t q = 0; q < lanes; q++) p[k * LANES + q] = EXP(p[k * LANES + q] - lse[q]);
        }
        if (a->dropout) FN(dropout_tile)(a, batch, head, key, keys, query, lanes, keep);
        if (dvp) {
          const T *kept = p;
          if (a->dropout) {
            FN(multiply)(dp, p, keep, keys, lanes);
            kept = dp;
          }
          FN(gemm)(keys, vld, n, kept, LANES, 1, dor, vld, dvp + key * j->dv_sum.row, j->dv_sum.row, true);
        }
        if (!dkp && !j->dq.data) continue;
        FN(gemm)(keys, lanes, vdim, v0, a->v.row, 1, dot, LANES, dp, LANES, false);
        if (a->dropout) FN(multiply)(dp, dp, keep, keys, lanes);
        for (int64_t k = 0; k < keys; k++) {
#pragma omp simd
          for (int64_t q = 0; q < lanes; q++) dp[k * LANES + q] = p[k * LANES + q] * (dp[k * LANES + q] - delta[q]);
        }
        if (dkp) FN(gemm)(keys, ld, n, dp, LANES, 1, qr, ld, dkp + key * j->dk_sum.row, j->dk_sum.row, true);
        if (j->dq.data) FN(gemm)(dim, lanes, keys, k0, 1, a->k.row, dp, LANES, dqt, LANES, true);
      }
      if (!j->dq.data) continue;
      T *out;
      int64_t row;
      if (j->splits == 1) {
        out = FN(head_of)(&j->dq, batch, head) + query * j->dq.row;
        row = j->dq.row;
      } else {
        out = (T *)j->dq_parts + (((split * a->batch + batch) * a->heads + head) * a->queries + query) * dim;
        row = dim;
      }
      FN(transpose_out)(dqt, out, row, n, dim, scale);
    }
  }
  T *dk = FN(head_of)(&j->dk, batch, kv), *dv = FN(head_of)(&j->dv, batch, kv);
  for (int64_t k = begin; k < end; k++) {
    if (dk && dk != dkp) memcpy(dk + k * j->dk.row, dkp + k * j->dk_sum.row, (size_t)dim * sizeof(T));
    if (dv && dv != dvp) memcpy(dv + k * j->dv.row, dvp + k * j->dv_sum.row, (size_t)vdim * sizeof(T));
  }
}

// Sums the query gradients of one head over the splits.
static TARGET void FN(combine_dq)(const struct job *j, int64_t batch, int64_t head) {
  const struct plaitk_attention *a = j->a;
  int64_t n = a->dim, stride = a->batch * a->heads * a->queries * n;
  for (int64_t q = 0; q < a->queries; q++) {
    const T *part = (const T *)j->dq_parts + ((batch * a->heads + head) * a->queries + q) * n;
    T *out = FN(head_of)(&j->dq, batch, head) + q * j->dq.row;
    for (int64_t d = 0; d < n; d++) {
      T s = 0;
      for (int64_t k = 0; k < j->splits; k++) s += part[k * stride + d];
      out[d] = s;
    }
  }
}

#undef LANES
#undef CHAIN
#undef SUMMED
#undef WIDTH
#endif
