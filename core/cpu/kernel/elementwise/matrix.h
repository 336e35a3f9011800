// Copies of matrices whose elements have type T, where N elements fill 16 bytes. Included once for each size of elements
// with T, N, and the index lists LOW and HIGH that interleave the first or the second halves of two vectors of N.
#define JOIN_(a, b) a##_##b
#define JOIN(a, b) JOIN_(a, b)
#define FN(name) JOIN(T, name)

typedef T FN(vector) __attribute__((vector_size(16)));

// Interleaving row i with row i + N/2, log2(N) times over, transposes a tile of N x N held in N vectors.
PLAIT_INLINE void FN(tile)(T *dst, int64_t dst_row, const T *src, int64_t src_col) {
  FN(vector) a[N], b[N];
  for (int i = 0; i < N; i++) memcpy(&a[i], src + i * src_col, 16);
  for (int step = 1; step < N; step *= 2) {
    for (int i = 0; i < N / 2; i++) {
      b[2 * i] = SHUFFLE(FN(vector), a[i], a[i + N / 2], LOW);
      b[2 * i + 1] = SHUFFLE(FN(vector), a[i], a[i + N / 2], HIGH);
    }
    memcpy(a, b, sizeof a);
  }
  for (int i = 0; i < N; i++) memcpy(dst + i * dst_row, &a[i], 16);
}

// dst is contiguous along its columns, src along its rows.
static void FN(transpose)(T *dst, int64_t dst_row, const T *src, int64_t src_col, int64_t rows, int64_t cols) {
  int64_t r = 0;
  for (; r + N <= rows; r += N) {
    int64_t c = 0;
    for (; c + N <= cols; c += N) FN(tile)(dst + r * dst_row + c, dst_row, src + r + c * src_col, src_col);
    for (; c < cols; c++) {
      for (int64_t i = r; i < r + N; i++) dst[i * dst_row + c] = src[i + c * src_col];
    }
  }
  for (; r < rows; r++) {
    for (int64_t c = 0; c < cols; c++) dst[r * dst_row + c] = src[r + c * src_col];
  }
}

PLAIT_CLONES static void FN(fill)(T *dst, int64_t n, T value) {
#pragma omp simd
  for (int64_t i = 0; i < n; i++) dst[i] = value;
}

static void FN(copy2d)(T *dst, int64_t dst_row, int64_t dst_col, const T *src, int64_t src_row, int64_t src_col,
                       int64_t rows, int64_t cols) {
  if (dst_col == 1 && src_col == 1 && cols >= 16) {
    for (int64_t r = 0; r < rows; r++) memcpy(dst + r * dst_row, src + r * src_row, (size_t)cols * sizeof(T));
  } else if (dst_col == 1 && src_col == 0 && cols >= 16) {
    for (int64_t r = 0; r < rows; r++) FN(fill)(dst + r * dst_row, cols, src[r * src_row]);
  } else if (dst_col == 1 && src_row == 1 && src_col != 1) {
    FN(transpose)(dst, dst_row, src, src_col, rows, cols);
  } else if (src_col == 1 && dst_row == 1 && dst_col != 1) {
    FN(transpose)(dst, dst_col, src, src_row, cols, rows);
  } else {
    for (int64_t r = 0; r < rows; r++) {
      for (int64_t c = 0; c < cols; c++) dst[r * dst_row + c * dst_col] = src[r * src_row + c * src_col];
    }
  }
}

#undef T
#undef N
#undef LOW
#undef HIGH
#undef FN
#undef JOIN
#undef JOIN_
