// Dropout of contiguous elements. See plait_each_float.h for the macros.
#ifdef FN

PLAIT_CLONES static void FN(dropout)(const struct dropout *a, int64_t first, int64_t n) {
  const T *x = a->x ? (const T *)a->x + first : NULL;
  T *y = (T *)a->y + first;
  ACC scale = (ACC)a->scale;
  // limit may be 2^32, which does not fit a word. So compare with limit - 1, the largest word that is kept.
  uint32_t last = (uint32_t)(a->limit - 1);
  uint32_t any = a->limit > 0;
  for (int64_t at = 0; at < n; at += 4 * BLOCKS) {
    int64_t len = n - at < 4 * BLOCKS ? n - at : 4 * BLOCKS;
    uint32_t w[4 * BLOCKS];
    plait_philox_words(w, (len + 3) / 4, a->seed, a->offset + (uint64_t)(first + at) / 4);
    if (x) {
#pragma omp simd
      for (int64_t i = 0; i < len; i++) {
        ACC v = LOAD(x[at + i]) * scale;
        y[at + i] = (w[i] <= last) & any ? STORE(v) : 0;
      }
    } else {
#pragma omp simd
      for (int64_t i = 0; i < len; i++) y[at + i] = (w[i] <= last) & any ? STORE(scale) : 0;
    }
  }
}

#endif
