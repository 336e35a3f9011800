// The forward pass of one tile of queries: part of tile.h and bf16.h. Besides the names of tile.h, it needs
//   ELEMENT         the element type of queries, keys, values and the result
//   OPERAND_BYTES   the bytes of the transposed queries and of other operands of products
//   SHARED(name)    the name of a function that works on scores
#ifdef FN

static TARGET void FN(forward_tile)(const struct job *j, int64_t batch, int64_t head, int64_t query) {
  const struct plaitk_attention *a = j->a;
  int64_t n = min64(LANES, a->queries - query), lanes = SHARED(pad)(n), dim = a->dim, vdim = a->value_dim;
  int64_t kv = head / (a->heads / a->kv_heads);
  const ELEMENT *qp = (const ELEMENT *)a->q.data + batch * a->q.batch + head * a->q.head + query * a->q.row;
  const ELEMENT *kp = (const ELEMENT *)a->k.data + batch * a->k.batch + kv * a->k.head;
  const ELEMENT *vp = (const ELEMENT *)a->v.data + batch * a->v.batch + kv * a->v.head;

  char operands[OPERAND_BYTES(dim, vdim)] __attribute__((aligned(64)));
  T ot[max64(1, vdim) * LANES] __attribute__((aligned(64)));
  T s[KEYS * LANES] __attribute__((aligned(64)));
  T keep[a->dropout ? KEYS * LANES : 1] __attribute__((aligned(64)));
  T max[LANES], sum[LANES], of_tile[LANES], alpha[LANES], safe[LANES];
  FN(take_queries)(a, qp, n, lanes, operands);
  memset(ot, 0, sizeof ot);
  for (int64_t q = 0; q < lanes; q++) {
    max[q] = -(T)INFINITY;
    sum[q] = 0;
  }
  int64_t limit = a->causal ? min64(a->keys, query + n) : a->keys;
  for (int64_t key = 0; key < limit; key += KEYS) {
    int64_t keys = min64(KEYS, limit - key);
    FN(scores)(a, kp + key * a->k.row, keys, lanes, operands, s);
    if (a->mask_dtype >= 0 || (a->causal && key + keys > query + 1)) {
      SHARED(mask_tile)(a, batch, head, key, keys, query, n, s);
    }
    for (int64_t q = 0; q < lanes; q++) safe[q] = max[q];
    for (int64_t k = 0; k < keys; k++) {
#pragma omp simd
      for (int64_t q = 0; q < lanes; q++) {
        T v = s[k * LANES + q];
        max[q] = v > max[q] ? v : max[q];
      }
    }
    for (int64_t q = 0; q < lanes; q++) {
      T before = safe[q];
      // While the maximum is -inf, any finite value gives the right exp(s - safe): 0, or NaN.
      safe[q] = max[q] == -(T)INFINITY ? 0 : max[q];
      alpha[q] = EXP(before - safe[q]);
    }
    for (int64_t k0 = 0; k0 < keys; k0 += SUMMED) {
      T part[LANES];
      for (int64_t q = 0; q < lanes; q++) part[q] = 0;
      for (int64_t k = k0; k < min64(k0 + SUMMED, keys); k++) {
#pragma omp simd
        for (int64_t q = 0; q < lanes; q++) {
          T p = EXP(s[k * LANES + q] - safe[q]);
          s[k * LANES + q] = p;
          part[q] += p;
        }
      }
      for (int64_t q = 0; q < lanes; q++) of_tile[q] = k0 == 0 ? part[q] : of_tile[q] + part[q];
    }
    for (int64_t q = 0; q < lanes; q++) sum[q] = sum[q] * alpha[q] + of_tile[q];
    if (a->dropout) {
      SHARED(dropout_tile)(a, batch, head, key, keys, query, lanes, keep);
      SHARED(multiply)(s, s, keep, keys, lanes);
    }
    if (key > 0) {
      for (int64_t d = 0; d < vdim; d++) {
#pragma omp simd
        for (int64_t q = 0; q < lanes; q++) ot[d * LANES + q] *= alpha[q];
      }
    }
    FN(weigh_values)(a, vp + key * a->v.row, keys, lanes, operands, s, ot);
  }
  T *lse = (T *)j->lse + (batch * a->heads + head) * a->queries + query;
  for (int64_t q = 0; q < n; q++) {
    alpha[q] = sum[q] == 0 ? 0 : 1 / sum[q];
    lse[q] = sum[q] == 0 ? (T)INFINITY : max[q] + LOG(sum[q]);
  }
  ELEMENT *op = (ELEMENT *)j->o.data + batch * j->o.batch + head * j->o.head + query * j->o.row;
  FN(transpose_out)(ot, op, j->o.row, n, vdim, alpha);
}

#endif
