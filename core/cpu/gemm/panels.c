#include "gemm.h"

plaitk_gemm_panels plaitk_gemm_panels_of(int dtype, int64_t k, int64_t n) {
  const gemm_kernels *kn = gemm_kernels_of(plaitk_gemm_variant(), dtype);
  int64_t panel = kn->nv * kn->lanes;
  return (plaitk_gemm_panels){.kernels = kn, .k = k, .n = n, .panel = panel, .count = ceil_div(n, panel)};
}

void plaitk_gemm_pack(const plaitk_gemm_panels *p, const void *b, int64_t b_row, int64_t b_col, int64_t first,
                      int64_t last) {
  const gemm_kernels *kn = p->kernels;
  int dtype = kn->size == 8 ? PLAIT_F64 : PLAIT_F32;
  for (int64_t i = first; i < last; i++) {
    int64_t j = i * p->panel;
    kn->pack((char *)p->data + j * p->k * kn->size, p->panel, (const char *)b + j * b_col * kn->size, dtype,
             min64(p->panel, p->n - j), b_col, p->k, b_row);
  }
}

void plaitk_gemm_by_panels(const plaitk_gemm_panels *p, int64_t m, const void *a, int64_t a_row, int64_t first,
                           int64_t last, void *c, int64_t c_row) {
  const gemm_kernels *kn = p->kernels;
  for (int64_t i = first; i < last; i++) {
    const char *b = (const char *)p->data + i * p->panel * p->k * kn->size;
    for (int64_t r = 0; r < m; r += kn->mr) {
      int64_t rows = min64(kn->mr, m - r);
      kn->unpacked[kn->nv - 1][rows - 1](p->k, (const char *)a + r * a_row * kn->size, a_row, 1, b, p->panel,
                                       (char *)c + (r * c_row + i * p->panel) * kn->size, c_row, 0);
    }
  }
}
