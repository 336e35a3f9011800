// Histograms. Each of several parts has its own bins; the bins of all parts are added in order.
#include "sorting.h"

static double value_at(int dtype, const void *in, int64_t i) {
  switch (dtype) {
  case PLAIT_F16:
    return (double)plait_f16_to_f32(((const uint16_t *)in)[i]);
  case PLAIT_BF16:
    return (double)plait_bf16_to_f32(((const uint16_t *)in)[i]);
  case PLAIT_F32:
    return (double)((const float *)in)[i];
  default:
    return ((const double *)in)[i];
  }
}

// bin_of returns the bin of element i, or -1 if the element is out of range.
static int64_t bin_of(const struct plaitk_histogram *h, int64_t i) {
  int64_t bin;
  if (!plait_is_float(h->dtype)) {
    bin = ((const int64_t *)h->in)[i];
    return bin < h->bins ? bin : -1;
  }
  double x = value_at(h->dtype, h->in, i);
  if (h->dtype == PLAIT_F64) {
    if (!(x >= h->low && x <= h->high)) return -1;
    bin = (int64_t)((x - h->low) * (double)h->bins / (h->high - h->low));
  } else { // computed in float32, as in PyTorch: at the edge of two bins, rounding decides
    float y = (float)x, low = (float)h->low, high = (float)h->high;
    if (!(y >= low && y <= high)) return -1;
    bin = (int64_t)((y - low) * (float)h->bins / (high - low));
  }
  return bin < h->bins ? bin : h->bins - 1; // the last bin includes its upper end
}

static void count(const struct plaitk_histogram *h, int64_t lo, int64_t hi, int64_t *restrict counts) {
  if (plait_is_float(h->dtype)) {
    for (int64_t i = lo; i < hi; i++) {
      int64_t bin = bin_of(h, i);
      if (bin >= 0) counts[bin]++;
    }
    return;
  }
  const int64_t *in = h->in, bins = h->bins;
  for (int64_t i = lo; i < hi; i++) {
    if (in[i] < bins) counts[in[i]]++;
  }
}

static void part(void *arg, int64_t index) {
  const struct plaitk_histogram *h = arg;
  int64_t size = (h->n + h->parts - 1) / h->parts, lo = index * size, hi = lo + size < h->n ? lo + size : h->n;
  void *bins = h->parts == 1 ? h->out : (int64_t *)h->scratch + index * h->bins;
  memset(bins, 0, (size_t)h->bins * 8); // also zero for doubles
  if (h->weights == NULL) {
    count(h, lo, hi, bins);
    return;
  }
  for (int64_t i = lo; i < hi; i++) {
    int64_t bin = bin_of(h, i);
    if (bin >= 0) ((double *)bins)[bin] += h->weights[i];
  }
}

void plaitk_sorting_histogram(plait_pool *pool, const struct plaitk_histogram *h) {
  plait_parallel(pool, h->parts, part, (void *)h);
  for (int64_t b = 0; h->parts > 1 && b < h->bins; b++) {
    int64_t count = 0;
    double sum = 0;
    for (int64_t p = 0; p < h->parts; p++) {
      if (h->weights != NULL) {
        sum += ((const double *)h->scratch)[p * h->bins + b];
      } else {
        count += ((const int64_t *)h->scratch)[p * h->bins + b];
      }
    }
    if (h->weights != NULL) {
      ((double *)h->out)[b] = sum;
    } else {
      ((int64_t *)h->out)[b] = count;
    }
  }
}
