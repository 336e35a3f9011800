#include "gemm.h"

static const gemm_kernels *kernels(void) { return gemm_pair_kernels_of(plaitk_gemm_variant(), PLAIT_BF16); }

static int64_t panel_bytes(int64_t k) { return 2 * PLAITK_GEMM_TILE * round_up(k, PLAITK_GEMM_TILE); }

int64_t plaitk_gemm_tiles_bytes(int64_t lines, int64_t k) { return ceil_div(lines, PLAITK_GEMM_TILE) * panel_bytes(k); }

static void pack(gemm_pack to_panel, void *panels, const uint16_t *src, int64_t lines, int64_t line_step, int64_t k,
                 int64_t k_step) {
  for (int64_t i = 0; i < lines; i += PLAITK_GEMM_TILE) {
    int64_t width = min64(PLAITK_GEMM_TILE, lines - i);
    to_panel((char *)panels + i / PLAITK_GEMM_TILE * panel_bytes(k), round_up(width, PLAITK_GEMM_SQUARE),
             src + i * line_step, PLAIT_BF16, width, line_step, k, k_step);
  }
}

void plaitk_gemm_tiles_a(void *panels, const uint16_t *a, int64_t m, int64_t a_row, int64_t k, int64_t a_col) {
  pack(kernels()->pack_a, panels, a, m, a_row, k, a_col);
}

void plaitk_gemm_tiles_b(void *panels, const uint16_t *b, int64_t n, int64_t b_col, int64_t k, int64_t b_row) {
  pack(kernels()->pack, panels, b, n, b_col, k, b_row);
}

void plaitk_gemm_by_tiles(int64_t m, int64_t n, int64_t k, const void *a, const void *b, float *c, int64_t c_row,
                          int add) {
  const gemm_kernels *kn = kernels();
  if (kn->begin) kn->begin();
  int64_t bytes = panel_bytes(k), steps = round_up(k, PLAITK_GEMM_TILE) / 2;
  for (int64_t i = 0; i < m; i += PLAITK_GEMM_TILE) {
    for (int64_t j = 0; j < n; j += PLAITK_GEMM_TILE) {
      int64_t rows = min64(PLAITK_GEMM_TILE, m - i), squares = n - j > PLAITK_GEMM_SQUARE ? 2 : 1;
      kn->pairs(rows, squares, steps, (const char *)a + i / PLAITK_GEMM_TILE * bytes,
                (const char *)b + j / PLAITK_GEMM_TILE * bytes, c + i * c_row + j, c_row, add);
    }
  }
  if (kn->end) kn->end();
}
