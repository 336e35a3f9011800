// Cross products of contiguous [outer, 3, inner] tensors, for every floating dtype: see plait_each_float.h.
PLAIT_INLINE void FN(product)(const T *restrict x, const T *restrict z, T *restrict y, int64_t n, int64_t step, int64_t apart) {
  const T *x1 = x + apart, *x2 = x + 2 * apart, *z1 = z + apart, *z2 = z + 2 * apart;
  T *y1 = y + apart, *y2 = y + 2 * apart;
#pragma omp simd
  for (int64_t i = 0; i < n; i++) {
    ACC a = LOAD(x[i * step]), b = LOAD(x1[i * step]), c = LOAD(x2[i * step]);
    ACC d = LOAD(z[i * step]), e = LOAD(z1[i * step]), f = LOAD(z2[i * step]);
    y[i * step] = STORE(b * f - c * e);
    y1[i * step] = STORE(c * d - a * f);
    y2[i * step] = STORE(a * e - b * d);
  }
}

PLAIT_CLONES static void FN(cross)(const struct job *j, int64_t first, int64_t last) {
  const T *x = j->x, *z = j->z;
  T *y = j->y;
  int64_t inner = j->inner;
  if (inner == 1) {
    FN(product)(x + 3 * first, z + 3 * first, y + 3 * first, last - first, 3, 1);
    return;
  }
  for (int64_t o = first; o < last; o++) {
    int64_t at = 3 * o * inner;
    FN(product)(x + at, z + at, y + at, inner, 1, inner);
  }
}
