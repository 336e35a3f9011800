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

// The elements p and q of a row or a column of each matrix, under rotations of the two by angles with these sines and tangents of their
// halves: so small angles add small errors.
PLAIT_INLINE void FN(turn)(const T *sine, const T *half, T *restrict p, T *restrict q) {
#pragma omp simd
  for (int m = 0; m < ABREAST; m++) {
    T x = p[m], y = q[m];
    p[m] = x - sine[m] * (y + half[m] * x);
    q[m] = y + sine[m] * (x - half[m] * y);
  }
}

// Rotations that make the elements (p, q) zero which are larger than `least`. Returns whether there are any.
PLAIT_INLINE bool FN(rotations)(const T *least, T *restrict pp, T *restrict qq, T *restrict pq, T *restrict sine, T *restrict half) {
  int32_t some = 0;
#pragma omp simd reduction(| : some)
  for (int m = 0; m < ABREAST; m++) {
    T cross = pq[m], twice = (qq[m] - pp[m]) / (2 * cross), size = 1 / (ABS(twice) + SQRT(twice * twice + 1)), other = -size;
    T tangent = twice < 0 ? other : size;  // twice is the cotangent of two times the angle
    bool turns = ABS(cross) > least[m];
    tangent = turns ? tangent : 0;
    T cosine = 1 / SQRT(tangent * tangent + 1);
    sine[m] = tangent * cosine;
    half[m] = sine[m] / (1 + cosine);
    pp[m] -= tangent * cross;
    qq[m] += tangent * cross;
    pq[m] = turns ? 0 : cross;
    some |= turns;
  }
  return some;
}

// The power of two that brings a matrix whose largest element is this to sizes whose squares and quotients are exact enough.
PLAIT_INLINE T FN(scale)(T largest) {
#if T_DOUBLE
  return largest > 0x1p1000 ? 0x1p-100 : largest < 0x1p-900 ? 0x1p200 : 1;
#else
  return largest > 0x1p100f ? 0x1p-30f : largest < 0x1p-80f ? 0x1p60f : 1;
#endif
}

// Jacobi's rotations of at most ABREAST symmetric matrices: the eigenvalues, in ascending order, and the eigenvectors as columns, if vectors
// is not NULL. Returns a bit for each matrix whose result is to be ignored: it is not finite, or the rotations do not end.
PLAIT_CLONES static uint32_t FN(eigh_abreast)(int64_t n, int64_t count, const T *restrict a, T *restrict values, T *restrict vectors) {
  T x[MOST_ABREAST][MOST_ABREAST][ABREAST];  // the upper triangles
  T v[MOST_ABREAST][MOST_ABREAST][ABREAST];  // eigenvectors as rows
  T scale[ABREAST], least[ABREAST], sine[ABREAST], half[ABREAST];
  uint32_t failed = 0;
  for (int64_t m = 0; m < ABREAST; m++) {
    const T *from = a + (m < count ? m : 0) * n * n;
    T largest = FN(largest)(n * n, from);
    scale[m] = FN(scale)(largest);
    for (int64_t i = 0; i < n; i++) {
      for (int64_t j = i; j < n; j++) x[i][j][m] = scale[m] * from[i * n + j];
      for (int64_t j = 0; j < n; j++) v[i][j][m] = i == j;
    }
    least[m] = scale[m] * largest * (EPSILON / 4);
    failed |= (uint32_t)!FN(finite)(n * n, from) << m;
  }
  bool turned = true;
  for (int sweep = 0; turned && sweep < SWEEPS; sweep++) {
    turned = false;
    for (int64_t p = 0; p < n; p++) {
      for (int64_t q = p + 1; q < n; q++) {
        if (!FN(rotations)(least, x[p][p], x[q][q], x[p][q], sine, half)) continue;
        turned = true;
        for (int64_t i = 0; i < p; i++) FN(turn)(sine, half, x[i][p], x[i][q]);
        for (int64_t i = p + 1; i < q; i++) FN(turn)(sine, half, x[p][i], x[i][q]);
        for (int64_t i = q + 1; i < n; i++) FN(turn)(sine, half, x[p][i], x[q][i]);
        for (int64_t i = 0; vectors && i < n; i++) FN(turn)(sine, half, v[p][i], v[q][i]);
      }
    }
  }
  for (int64_t m = 0; m < count; m++) {
    int64_t order[MOST_ABREAST];
    for (int64_t i = 0; i < n; i++) {
      int64_t at = i;
      for (; at > 0 && x[order[at - 1]][order[at - 1]][m] > x[i][i][m]; at--) order[at] = order[at - 1];
      order[at] = i;
    }
    for (int64_t i = 0; i < n; i++) {
      values[m * n + i] = x[order[i]][order[i]][m] / scale[m];
      for (int64_t j = 0; vectors && j < n; j++) vectors[(m * n + j) * n + i] = v[order[i]][j][m];
    }
    bool ends = true;
    for (int64_t i = 0; turned && i < n; i++) {
      for (int64_t j = i + 1; j < n; j++) ends &= ABS(x[i][j][m]) <= least[m];
    }
    failed |= (uint32_t)!ends << m;
  }
  return failed;
}
