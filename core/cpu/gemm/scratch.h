// Memory that a product needs while it runs.
#ifndef PLAITK_GEMM_SCRATCH_H
#define PLAITK_GEMM_SCRATCH_H

#include <stddef.h>

// gemm_local returns the calling thread's own block, of at least `bytes`, aligned to a page; NULL without memory. Its
// contents and a former address do not outlive the next call.
void *gemm_local(size_t bytes);

// gemm_take returns a block that the caller has to itself until gemm_give; NULL without memory.
void *gemm_take(size_t bytes);
void gemm_give(void *block);

#endif
