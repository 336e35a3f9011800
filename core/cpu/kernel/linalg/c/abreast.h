// Small matrices of a stack, several at once: loops run across them, so that vectors are full whatever the matrices' size.

// L of the lower triangles of at most ABREAST matrices, one behind the other. Returns a bit for each that is not positive definite, whose
// result is to be ignored.
PLAIT_CLONES static uint32_t FN(cholesky_abreast)(int64_t n, int64_t count, const T *restrict a, T *restrict out) {
  T x[MOST_ABREAST][MOST_ABREAST][ABREAST];
  int32_t fails[ABREAST] = {0};
  for (int64_t m = 0; m < ABREAST; m++) {
    const T *from = a + (m < count ? m : 0) * n * n;
    for (int64_t i = 0; i < n; i++) {
      for (int64_t j = 0; j <= i; j++) x[i][j][m] = from[i * n + j];
    }
  }
  for (int64_t j = 0; j < n; j++) {
    T *restrict pivot = x[j][j];
#pragma omp simd
    for (int m = 0; m < ABREAST; m++) {
      fails[m] |= !(pivot[m] > 0);
      pivot[m] = SQRT(pivot[m]);
    }
    for (int64_t i = j + 1; i < n; i++) {
      T *restrict row = x[i][j];
#pragma omp simd
      for (int m = 0; m < ABREAST; m++) row[m] /= pivot[m];
      for (int64_t k = j + 1; k <= i; k++) {
        const T *left = x[i][j], *right = x[k][j];
        T *restrict to = x[i][k];
#pragma omp simd
        for (int m = 0; m < ABREAST; m++) to[m] -= left[m] * right[m];
      }
    }
  }
  uint32_t failed = 0;
  for (int64_t m = 0; m < count; m++) {
    T *to = out + m * n * n;
    for (int64_t i = 0; i < n; i++) {
      for (int64_t j = 0; j < n; j++) to[i * n + j] = j <= i ? x[i][j][m] : 0;
    }
    failed |= (uint32_t)(fails[m] != 0) << m;
  }
  return failed;
}
