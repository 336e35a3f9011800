#include <math.h>
#include <string.h>

#include "../../../include/plait_kernel.h"
#include "linalg.h"

// y += f * x
PLAIT_CLONES static void add_scaled(int64_t n, double f, const double *restrict x, double *restrict y) {
#pragma omp simd
  for (int64_t i = 0; i < n; i++) y[i] += f * x[i];
}

PLAIT_CLONES static double dot(int64_t n, const double *restrict x, const double *restrict y) {
  double s = 0;
#pragma omp simd reduction(+ : s)
  for (int64_t i = 0; i < n; i++) s += x[i] * y[i];
  return s;
}

// Applies a Givens rotation to x and y, of n elements each.
PLAIT_CLONES static void rotate(int64_t n, double c, double s, double *restrict x, double *restrict y) {
#pragma omp simd
  for (int64_t i = 0; i < n; i++) {
    double a = x[i], b = y[i];
    x[i] = c * a - s * b;
    y[i] = s * a + c * b;
  }
}

// LU with partial pivoting, in place. Row i was exchanged with row pivots[i]. L, without its unit diagonal, and U
// replace a.
int64_t plaitk_linalg_lu(int64_t m, int64_t n, double *a, int64_t *pivots, int *sign) {
  int64_t failed = 0;
  *sign = 1;
  for (int64_t k = 0; k < m && k < n; k++) {
    int64_t p = k;
    for (int64_t i = k + 1; i < m; i++) {
      if (fabs(a[i * n + k]) > fabs(a[p * n + k])) p = i;
    }
    pivots[k] = p;
    if (p != k) {
      *sign = -*sign;
      for (int64_t j = 0; j < n; j++) {
        double t = a[k * n + j];
        a[k * n + j] = a[p * n + j];
        a[p * n + j] = t;
      }
    }
    if (a[k * n + k] == 0) {
      if (failed == 0) failed = k + 1;
      continue;
    }
    for (int64_t i = k + 1; i < m; i++) {
      double f = a[i * n + k] / a[k * n + k];
      a[i * n + k] = f;
      if (f != 0) add_scaled(n - k - 1, -f, a + k * n + k + 1, a + i * n + k + 1);
    }
  }
  return failed;
}

int64_t plaitk_linalg_cholesky(int64_t n, double *a) {
  for (int64_t i = 0; i < n; i++) {
    for (int64_t j = 0; j < i; j++) {
      a[i * n + j] = (a[i * n + j] - dot(j, a + i * n, a + j * n)) / a[j * n + j];
    }
    double d = a[i * n + i] - dot(i, a + i * n, a + i * n);
    if (!(d > 0)) return i + 1;
    a[i * n + i] = sqrt(d);
    for (int64_t j = i + 1; j < n; j++) a[i * n + j] = 0;
  }
  return 0;
}

// QR by Householder reflections. a is the columns of A, n lines of m elements. On return, line j starts with column j
// of R, and q has the min(m, n) columns of Q as lines. w has m elements for each of min(m, n) reflections.
void plaitk_linalg_qr(int64_t m, int64_t n, double *a, double *q, double *w) {
  int64_t count = m < n ? m : n;
  for (int64_t j = 0; j < count; j++) {
    double *x = a + j * m + j, *v = w + j * m;
    int64_t rest = m - j;
    double tail = dot(rest - 1, x + 1, x + 1), norm = sqrt(x[0] * x[0] + tail);
    memset(v, 0, (size_t)m * sizeof *v);
    if (tail == 0) continue;  // the column needs no reflection
    double beta = x[0] > 0 ? -norm : norm;
    memcpy(v + j, x, (size_t)rest * sizeof *v);
    v[j] -= beta;
    double scale = sqrt(2 / dot(rest, v + j, v + j));
    for (int64_t i = j; i < m; i++) v[i] *= scale;
    for (int64_t c = j; c < n; c++) add_scaled(rest, -dot(rest, v + j, a + c * m + j), v + j, a + c * m + j);
  }
  for (int64_t j = 0; j < count; j++) {
    double *x = q + j * m;
    memset(x, 0, (size_t)m * sizeof *x);
    x[j] = 1;
    for (int64_t r = j; r >= 0; r--) add_scaled(m - r, -dot(m - r, w + r * m + r, x + r), w + r * m + r, x + r);
  }
}

#define SWEEPS 60

// Eigenvalues by Jacobi rotations. vectors gets the eigenvectors as lines.
int plaitk_linalg_eigh(int64_t n, double *a, double *values, double *vectors) {
  memset(vectors, 0, (size_t)(n * n) * sizeof *vectors);
  for (int64_t i = 0; i < n; i++) vectors[i * n + i] = 1;
  double all = dot(n * n, a, a);
  if (!isfinite(all)) return LINALG_DIVERGED;
  int sweep = 0;
  for (; sweep < SWEEPS; sweep++) {
    double off = 0;
    for (int64_t p = 0; p < n; p++) {
      for (int64_t q = p + 1; q < n; q++) off += a[p * n + q] * a[p * n + q];
    }
    if (off <= 1e-32 * all) break;
    for (int64_t p = 0; p < n; p++) {
      for (int64_t q = p + 1; q < n; q++) {
        double apq = a[p * n + q];
        if (apq == 0) continue;
        double theta = (a[q * n + q] - a[p * n + p]) / (2 * apq);
        double t = (theta < 0 ? -1 : 1) / (fabs(theta) + sqrt(theta * theta + 1));
        double c = 1 / sqrt(t * t + 1), s = t * c;
        rotate(n, c, s, a + p * n, a + q * n);
        for (int64_t i = 0; i < n; i++) {
          double x = a[i * n + p], y = a[i * n + q];
          a[i * n + p] = c * x - s * y;
          a[i * n + q] = s * x + c * y;
        }
        rotate(n, c, s, vectors + p * n, vectors + q * n);
      }
    }
  }
  if (sweep == SWEEPS) return LINALG_DIVERGED;
  for (int64_t i = 0; i < n; i++) values[i] = a[i * n + i];
  for (int64_t i = 0; i < n; i++) {
    int64_t least = i;
    for (int64_t j = i + 1; j < n; j++) {
      if (values[j] < values[least]) least = j;
    }
    if (least == i) continue;
    double t = values[i];
    values[i] = values[least];
    values[least] = t;
    for (int64_t j = 0; j < n; j++) {
      double x = vectors[i * n + j];
      vectors[i * n + j] = vectors[least * n + j];
      vectors[least * n + j] = x;
    }
  }
  return LINALG_OK;
}

// SVD by Hestenes's one-sided Jacobi rotations. The columns of A, n lines of m >= n elements, become the columns of U.
// v gets the columns of V as n lines.
int plaitk_linalg_svd(int64_t m, int64_t n, double *rows, double *s, double *v) {
  memset(v, 0, (size_t)(n * n) * sizeof *v);
  for (int64_t i = 0; i < n; i++) v[i * n + i] = 1;
  double all = dot(n * m, rows, rows);
  if (!isfinite(all)) return LINALG_DIVERGED;
  bool turned = true;
  for (int sweep = 0; turned; sweep++) {
    if (sweep == SWEEPS) return LINALG_DIVERGED;
    turned = false;
    for (int64_t p = 0; p < n; p++) {
      for (int64_t q = p + 1; q < n; q++) {
        double *x = rows + p * m, *y = rows + q * m;
        double xx = dot(m, x, x), yy = dot(m, y, y), xy = dot(m, x, y);
        if (fabs(xy) <= 1e-15 * sqrt(xx * yy) || fabs(xy) <= 1e-32 * all) continue;
        turned = true;
        double theta = (yy - xx) / (2 * xy);
        double t = (theta < 0 ? -1 : 1) / (fabs(theta) + sqrt(theta * theta + 1));
        double c = 1 / sqrt(t * t + 1), f = t * c;
        rotate(m, c, f, x, y);
        rotate(n, c, f, v + p * n, v + q * n);
      }
    }
  }
  for (int64_t i = 0; i < n; i++) s[i] = sqrt(dot(m, rows + i * m, rows + i * m));
  for (int64_t i = 0; i < n; i++) {
    int64_t most = i;
    for (int64_t j = i + 1; j < n; j++) {
      if (s[j] > s[most]) most = j;
    }
    if (most == i) continue;
    rotate(m, 0, 1, rows + i * m, rows + most * m);  // exchanges two lines, except for a sign
    rotate(n, 0, 1, v + i * n, v + most * n);
    double t = s[i];
    s[i] = s[most];
    s[most] = t;
  }
  // For singular values of zero, columns of U are any unit vectors orthogonal to the other columns.
  int64_t unit = 0;
  for (int64_t i = 0; i < n; i++) {
    double *x = rows + i * m;
    if (s[i] > 1e-300 && s[i] > 1e-15 * s[0]) {
      for (int64_t j = 0; j < m; j++) x[j] /= s[i];
      continue;
    }
    for (; unit < m; unit++) {
      memset(x, 0, (size_t)m * sizeof *x);
      x[unit] = 1;
      for (int pass = 0; pass < 2; pass++) {
        for (int64_t j = 0; j < i; j++) add_scaled(m, -dot(m, x, rows + j * m), rows + j * m, x);
      }
      double norm = sqrt(dot(m, x, x));
      if (norm < 0.5 / sqrt((double)m)) continue;
      for (int64_t j = 0; j < m; j++) x[j] /= norm;
      unit++;
      break;
    }
  }
  return LINALG_OK;
}
