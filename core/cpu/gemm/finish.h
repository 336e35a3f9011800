// Storing: part of tile.h.

LOCAL T NAME(load)(const void *c, int dtype, int64_t i) {
  switch (dtype) {
    case PLAIT_F16: return (T)plait_f16_to_f32(((const uint16_t *)c)[i]);
    case PLAIT_BF16: return (T)plait_bf16_to_f32(((const uint16_t *)c)[i]);
    case PLAIT_F32: return (T)((const float *)c)[i];
    default: return (T)((const double *)c)[i];
  }
}

LOCAL void NAME(store)(void *c, int dtype, int64_t i, T x) {
  switch (dtype) {
    case PLAIT_F16: ((uint16_t *)c)[i] = plait_f32_to_f16((float)x); break;
    case PLAIT_BF16: ((uint16_t *)c)[i] = plait_f32_to_bf16((float)x); break;
    case PLAIT_F32: ((float *)c)[i] = (float)x; break;
    default: ((double *)c)[i] = (double)x; break;
  }
}

// Inlined with constant dtype and steps where they matter, so that the loops vectorise.
LOCAL void NAME(finish_row)(const gemm_finish *f, int dtype, int64_t step, const T *restrict sums, int64_t cols,
                            void *restrict c, const T *restrict bias, int64_t bias_step) {
  T alpha = (T)f->alpha, beta = (T)f->beta;
  if (beta == 0 && bias == NULL) {
#pragma omp simd
    for (int64_t j = 0; j < cols; j++) NAME(store)(c, dtype, j * step, alpha * sums[j]);
  } else if (beta == 0) {
#pragma omp simd
    for (int64_t j = 0; j < cols; j++) NAME(store)(c, dtype, j * step, alpha * sums[j] + bias[j * bias_step]);
  } else if (bias == NULL) {
#pragma omp simd
    for (int64_t j = 0; j < cols; j++) NAME(store)(c, dtype, j * step, alpha * sums[j] + beta * NAME(load)(c, dtype, j * step));
  } else {
#pragma omp simd
    for (int64_t j = 0; j < cols; j++) NAME(store)(c, dtype, j * step, alpha * sums[j] + beta * NAME(load)(c, dtype, j * step) + bias[j * bias_step]);
  }
}

// One vector of C, of which n elements count.
LOCAL void NAME(finish_part)(const gemm_finish *f, V sums, int64_t n, T *c, V bias) {
  V x = (T)f->alpha * sums + bias;
  if (f->beta != 0) x += (T)f->beta * NAME(load_part)(c, n);
  NAME(store_part)(c, n, x);
}

// C's rows are contiguous and of the accumulating type.
LOCAL void NAME(finish_rows)(const gemm_finish *f, const T *restrict sums, int64_t sums_row, int64_t rows, int64_t cols,
                             T *restrict c, const T *restrict bias) {
  for (int64_t j = 0; j < cols; j += LANES) {
    int64_t n = cols - j < LANES ? cols - j : LANES;
    V shift = (V){0} - (V){0};
    if (bias != NULL && !f->bias_rows) shift = NAME(load_part)(bias + j, n);
    for (int64_t i = 0; i < rows; i++) {
      if (bias != NULL && f->bias_rows) shift = bias[i] - (V){0};
      NAME(finish_part)(f, NAME(load_part)(sums + i * sums_row + j, n), n, c + i * f->c_row + j, shift);
    }
  }
}

// C's columns are contiguous and of the accumulating type.
LOCAL void NAME(finish_columns)(const gemm_finish *f, const T *restrict sums, int64_t sums_row, int64_t rows,
                                int64_t cols, T *restrict c, const T *restrict bias) {
  for (int64_t i = 0; i < rows; i += LANES) {
    int64_t n = rows - i < LANES ? rows - i : LANES;
    V shift = (V){0};
    if (bias != NULL && f->bias_rows) shift = NAME(load_part)(bias + i, n);
    for (int64_t j = 0; j < cols; j += LANES) {
      int64_t width = cols - j < LANES ? cols - j : LANES;
      V r[LANES];
      for (int64_t q = 0; q < n; q++) r[q] = NAME(load_part)(sums + (i + q) * sums_row + j, width);
      for (int64_t q = n; q < LANES; q++) r[q] = (V){0};
      NAME(transpose)(r);
      for (int64_t q = 0; q < width; q++) {
        if (bias != NULL && !f->bias_rows) shift = bias[j + q] - (V){0};
        NAME(finish_part)(f, r[q], n, c + i + (j + q) * f->c_col, shift);
      }
    }
  }
}

TARGET static void NAME(finish)(const gemm_finish *f, const void *sums, int64_t sums_row, int64_t rows, int64_t cols,
                                void *c, const void *bias) {
  int64_t size = f->out == PLAIT_F64 ? 8 : f->out == PLAIT_F32 ? 4 : 2;
  if (size == sizeof(T) && f->c_col == 1) {
    NAME(finish_rows)(f, sums, sums_row, rows, cols, c, bias);
    return;
  }
  if (size == sizeof(T) && f->c_row == 1) {
    NAME(finish_columns)(f, sums, sums_row, rows, cols, c, bias);
    return;
  }
  for (int64_t i = 0; i < rows; i++) {
    const T *from = (const T *)sums + i * sums_row;
    void *to = (char *)c + i * f->c_row * size;
    if (f->c_col != 1 || (f->bias_rows && bias != NULL)) {
      const T *b = bias;
      if (b != NULL && f->bias_rows) b += i;
      NAME(finish_row)(f, f->out, f->c_col, from, cols, to, b, f->bias_rows ? 0 : 1);
    } else if (f->out == PLAIT_F16) {
      NAME(finish_row)(f, PLAIT_F16, 1, from, cols, to, bias, 1);
    } else {
      NAME(finish_row)(f, PLAIT_BF16, 1, from, cols, to, bias, 1);
    }
  }
}
