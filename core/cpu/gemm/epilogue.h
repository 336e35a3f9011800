// The epilogue, which writes C: part of tile.h.

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

// Calls pass a constant dtype and constant steps, so that the inlined loops vectorise.
LOCAL void NAME(epilogue_row)(const gemm_epilogue *f, int dtype, int64_t step, const T *restrict sums, int64_t cols,
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

// Writes the first n elements of one vector of C.
LOCAL void NAME(epilogue_part)(const gemm_epilogue *f, V sums, int64_t n, T *c, V bias) {
  V x = (T)f->alpha * sums + bias;
  if (f->beta != 0) x += (T)f->beta * NAME(load_part)(c, n);
  NAME(store_part)(c, n, x);
}

// For a C with contiguous rows, of the accumulator type.
LOCAL void NAME(epilogue_rows)(const gemm_epilogue *f, const T *restrict sums, int64_t sums_row, int64_t rows, int64_t cols,
                             T *restrict c, const T *restrict bias) {
  for (int64_t j = 0; j < cols; j += LANES) {
    int64_t n = cols - j < LANES ? cols - j : LANES;
    V shift = (V){0} - (V){0};
    if (bias != NULL && !f->bias_rows) shift = NAME(load_part)(bias + j, n);
    for (int64_t i = 0; i < rows; i++) {
      if (bias != NULL && f->bias_rows) shift = bias[i] - (V){0};
      NAME(epilogue_part)(f, NAME(load_part)(sums + i * sums_row + j, n), n, c + i * f->c_row + j, shift);
    }
  }
}

// For a C with contiguous columns, of the accumulator type. It transposes squares of vectors.
LOCAL void NAME(epilogue_columns)(const gemm_epilogue *f, const T *restrict sums, int64_t sums_row, int64_t rows,
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
        NAME(epilogue_part)(f, r[q], n, c + i + (j + q) * f->c_col, shift);
      }
    }
  }
}

TARGET static void NAME(epilogue)(const gemm_epilogue *f, const void *sums, int64_t sums_row, int64_t rows, int64_t cols,
                                void *c, const void *bias) {
  int64_t size = f->out == PLAIT_F64 ? 8 : f->out == PLAIT_F32 ? 4 : 2;
  if (size == sizeof(T) && f->c_col == 1) {
    NAME(epilogue_rows)(f, sums, sums_row, rows, cols, c, bias);
    return;
  }
  if (size == sizeof(T) && f->c_row == 1) {
    NAME(epilogue_columns)(f, sums, sums_row, rows, cols, c, bias);
    return;
  }
  for (int64_t i = 0; i < rows; i++) {
    const T *from = (const T *)sums + i * sums_row;
    void *to = (char *)c + i * f->c_row * size;
    if (f->c_col != 1 || (f->bias_rows && bias != NULL)) {
      const T *b = bias;
      if (b != NULL && f->bias_rows) b += i;
      NAME(epilogue_row)(f, f->out, f->c_col, from, cols, to, b, f->bias_rows ? 0 : 1);
    } else if (f->out == PLAIT_F16) {
      NAME(epilogue_row)(f, PLAIT_F16, 1, from, cols, to, bias, 1);
    } else {
      NAME(epilogue_row)(f, PLAIT_BF16, 1, from, cols, to, bias, 1);
    }
  }
}
