// A product on its way through the built-in implementation.
#ifndef PLAITK_GEMM_IMPL_H
#define PLAITK_GEMM_IMPL_H

#include <stdbool.h>

#include "kernels.h"
#include "../include/plait_gemm.h"
#include "../include/plait_slots.h"

typedef struct gemm_job {
  int64_t m, n, k;
  const char *a;
  int64_t a_row, a_col;
  const char *b;
  int64_t b_row, b_col;
  char *c;
  int a_in, b_in;  // dtypes, GEMM_ROUNDED or GEMM_TURNED
  int64_t a_size, b_size, out_size;
  const gemm_kernels *kernels;
  const gemm_kernels *pairs;  // kernels of pairs, or NULL
  gemm_epilogue epilogue;
  const char *bias;  // contiguous, of the accumulator type
  bool turned;       // B is
  bool same_type;    // A and B have the accumulator type, so they need no conversion
  bool in_c;         // C can hold the accumulators, so they need no memory of their own
} gemm_job;

// Each algorithm computes a whole job. Its second function returns the bytes of scratch that it needs on so many
// threads.
void gemm_packed(plait_pool *pool, const gemm_job *job, char *scratch);
int64_t gemm_packed_scratch(int threads, const gemm_job *job);
void gemm_small(const gemm_job *job, char *scratch);
int64_t gemm_small_scratch(const gemm_job *job);
void gemm_thin(plait_pool *pool, const gemm_job *job, char *scratch);
int64_t gemm_thin_scratch(int threads, const gemm_job *job);
void gemm_split(plait_pool *pool, const gemm_job *job, char *scratch);
int64_t gemm_split_scratch(int threads, const gemm_job *job);

// Each reports whether its algorithm suits the job.
bool gemm_is_small(const gemm_job *job);
bool gemm_is_thin(const gemm_job *job);
bool gemm_is_split(const gemm_job *job);

// gemm_any picks the thin, small or packed algorithm by the shape.
void gemm_any(plait_pool *pool, const gemm_job *job, char *scratch);
int64_t gemm_any_scratch(int threads, const gemm_job *job);

// gemm_store_tile stores a rows x cols tile of accumulators at row i, column j of C. It adds them to C if `add`, and
// adds the bias if `last`, which says that K is complete.
void gemm_store_tile(const gemm_job *job, const void *sums, int64_t sums_row, int64_t rows, int64_t cols, char *c,
                     bool add, bool last, int64_t i, int64_t j);

// gemm_bias returns the bias for the part of C at row i, column j.
static inline const char *gemm_bias(const gemm_job *job, int64_t i, int64_t j) {
  if (job->bias == NULL) return NULL;
  return job->bias + (job->epilogue.bias_rows ? i : j) * job->kernels->size;
}

enum { GEMM_TINY_OPS = 256 };  // multiplications

// gemm_is_tiny reports whether a product suits gemm_tiny, which computes products first to end - 1 of a batch.
bool gemm_is_tiny(const plaitk_gemm *g);
void gemm_tiny(const plaitk_gemm *g, int dims, const plaitk_gemm_dim *dim, int64_t first, int64_t end);

static inline int64_t min64(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t max64(int64_t a, int64_t b) { return a > b ? a : b; }
static inline int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
static inline int64_t round_up(int64_t a, int64_t b) { return ceil_div(a, b) * b; }

#endif
