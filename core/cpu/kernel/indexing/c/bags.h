// The largest rows of bags, for one dtype.

// Writes the largest of n elements of the rows at index[0..count-1], from a column on.
PLAIT_CLONES static void FN(bag)(const plaitk_bag_max *m, T *restrict y, int64_t *restrict rows, const int64_t *restrict index,
                                 int64_t count, int64_t column, int64_t n) {
  ACC best[BAG_COLUMNS];
  int32_t where[BAG_COLUMNS]; // in index
  const T *weight = (const T *)m->weight + column;
  int64_t k = 0;
  while (k < count && index[k] == m->padding) k++;
  if (k == count) {
    for (int64_t i = 0; i < n; i++) y[i] = STORE((ACC)0);
    for (int64_t i = 0; i < n && rows; i++) rows[i] = -1;
    return;
  }
  const T *first = weight + index[k] * m->columns;
  _Pragma("omp simd") for (int64_t i = 0; i < n; i++) best[i] = LOAD(first[i]);
  for (int64_t i = 0; i < n; i++) where[i] = (int32_t)k;
  while (++k < count) {
    if (index[k] == m->padding) continue;
    const T *restrict row = weight + index[k] * m->columns;
    if (rows) {
      _Pragma("omp simd") for (int64_t i = 0; i < n; i++) {
        ACC v = LOAD(row[i]);
        where[i] = v > best[i] ? (int32_t)k : where[i];
        best[i] = v > best[i] ? v : best[i];
      }
    } else {
      _Pragma("omp simd") for (int64_t i = 0; i < n; i++) {
        ACC v = LOAD(row[i]);
        best[i] = v > best[i] ? v : best[i];
      }
    }
  }
  _Pragma("omp simd") for (int64_t i = 0; i < n; i++) y[i] = STORE(best[i]);
  for (int64_t i = 0; i < n && rows; i++) rows[i] = index[where[i]];
}
