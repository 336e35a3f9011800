// Group norm where each channel of a sample is a long row of `inner` contiguous elements.
#ifdef FN

PLAIT_CLONES static void FN(group_rows)(const struct group_args *a, int64_t first, int64_t rows) {
  int64_t per = a->channels / a->groups, inner = a->inner, n = per * inner;
  for (int64_t r = first; r < first + rows; r++) {
    const T *x = (const T *)a->x + r * n;
    T *y = (T *)a->y + r * n;
    double m, m2 = FN(moments)(x, n, &m);
    ACC mean = (ACC)m, rstd = (ACC)(1 / sqrt(m2 / (double)n + a->eps));
    if (a->mean) ((ACC *)a->mean)[r] = mean;
    if (a->rstd) ((ACC *)a->rstd)[r] = rstd;
    for (int64_t k = 0; k < per; k++) {
      int64_t c = r % a->groups * per + k;
      ACC scale = a->w ? rstd * ((const ACC *)a->w)[c] : rstd;
      ACC shift = FN(mean_shift)(m, mean, scale) + (a->b ? ((const ACC *)a->b)[c] : 0);
      FN(affine)(x + k * inner, y + k * inner, inner, mean, scale, shift);
    }
  }
}

// Let h = (x - mean)*rstd and g = dy*w. Per channel of a sample, part gets the sums of dy*h and dy. dx = rstd*(g -
// mean(g) - h*mean(g*h)), where the means are over the group.
PLAIT_CLONES static void FN(group_rows_grad)(const struct group_args *a, int64_t first, int64_t rows) {
  int64_t per = a->channels / a->groups, inner = a->inner, n = per * inner, total = a->batch * a->channels;
  for (int64_t r = first; r < first + rows; r++) {
    const T *x = (const T *)a->x + r * n, *dy = (const T *)a->dy + r * n;
    const ACC *w = a->w ? (const ACC *)a->w + r % a->groups * per : NULL;
    ACC mean = ((const ACC *)a->mean)[r], rstd = ((const ACC *)a->rstd)[r];
    double s = 0, sx = 0;
    for (int64_t k = 0; k < per; k++) {
      double u, ux;
      FN(grad_sums)(x + k * inner, dy + k * inner, NULL, inner, mean, &u, &ux);
      a->part[r * per + k] = ux * (double)rstd;
      a->part[total + r * per + k] = u;
      s += w ? u * (double)w[k] : u;
      sx += w ? ux * (double)w[k] : ux;
    }
    if (!a->dx) continue;
    double inv = 1 / (double)n, rs = (double)rstd;
    ACC b = (ACC)(-rs * rs * rs * sx * inv), c = (ACC)(-rs * s * inv);
    T *dx = (T *)a->dx + r * n;
    for (int64_t k = 0; k < per; k++) {
      FN(grad_affine)(x + k * inner, dy + k * inner, dx + k * inner, inner, mean, w ? rstd * w[k] : rstd, b, c);
    }
  }
}

#endif
