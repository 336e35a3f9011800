// Softmax of short lines that lie side by side, the columns of blocks of plait_abreast.h.
#ifdef FN

// Columns are a multiple of the lanes of a vector: those behind the last line are of no line.
#define EACH_COLUMN _Pragma("omp simd") for (int64_t j = 0; j < w; j++)

PLAIT_CLONES static void FN(softmax_abreast)(const T *restrict x, T *restrict y, int64_t n, int64_t w, int log_) {
  ACC max[PLAIT_ABREAST], sum[PLAIT_ABREAST] = {0}, e[PLAIT_ABREAST_N * PLAIT_ABREAST];
  enum { P = PLAIT_ABREAST_PITCH };
  EACH_COLUMN max[j] = -ACC_INFINITY;
  for (int64_t i = 0; i < n; i++) {
    EACH_COLUMN {
      ACC v = LOAD(x[i * P + j]);
      max[j] = v > max[j] ? v : max[j];
    }
  }
  for (int64_t i = 0; i < n; i++) {
    EACH_COLUMN {
      ACC v = EXP(LOAD(x[i * P + j]) - max[j]);
      e[i * PLAIT_ABREAST + j] = v;
      sum[j] += v;
    }
  }
  if (log_) {
    EACH_COLUMN sum[j] = LOG(sum[j]);
    for (int64_t i = 0; i < n; i++) EACH_COLUMN y[i * P + j] = STORE(LOAD(x[i * P + j]) - max[j] - sum[j]);
  } else {
    EACH_COLUMN sum[j] = 1 / sum[j];
    for (int64_t i = 0; i < n; i++) EACH_COLUMN y[i * P + j] = STORE(e[i * PLAIT_ABREAST + j] * sum[j]);
  }
}

PLAIT_CLONES static void FN(softmax_abreast_grad)(const T *restrict y, const T *restrict dy, T *restrict dx, int64_t n, int64_t w,
                                                  int log_) {
  ACC sum[PLAIT_ABREAST] = {0};
  enum { P = PLAIT_ABREAST_PITCH };
  for (int64_t i = 0; i < n; i++) {
    const T *yi = y + i * P, *dyi = dy + i * P;
    if (log_) {
      EACH_COLUMN sum[j] += LOAD(dyi[j]);
    } else {
      EACH_COLUMN sum[j] += LOAD(dyi[j]) * LOAD(yi[j]);
    }
  }
  for (int64_t i = 0; i < n; i++) {
    const T *yi = y + i * P, *dyi = dy + i * P;
    T *dxi = dx + i * P;
    if (log_) {
      EACH_COLUMN dxi[j] = STORE(LOAD(dyi[j]) - EXP(LOAD(yi[j])) * sum[j]);
    } else {
      EACH_COLUMN dxi[j] = STORE(LOAD(yi[j]) * (LOAD(dyi[j]) - sum[j]));
    }
  }
}
#undef EACH_COLUMN

#endif
