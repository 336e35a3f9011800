// The worker pool of one CPU device.
#ifndef PLAIT_POOL_H
#define PLAIT_POOL_H

#include <stdint.h>

typedef struct plait_pool plait_pool;

// A task runs chunk `chunk` of the work described by `arg`.
typedef void (*plait_task)(void *arg, int64_t chunk);

// plait_parallel runs fn(arg, 0), ..., fn(arg, chunks-1), each exactly once, on the calling thread and the pool's
// workers, and returns when all are done. Chunks are handed out dynamically: the result must not depend on which thread
// runs which chunk, nor on their number, so callers cut work by its shape alone. A NULL or busy pool runs everything on
// the calling thread. Tasks must not call plait_parallel with the same pool.
void plait_parallel(plait_pool *pool, int64_t chunks, plait_task fn, void *arg);

// plait_pool_new starts threads-1 workers (the caller is the last one); NULL if threads <= 1 or none could be started.
plait_pool *plait_pool_new(int threads);

// plait_pool_threads returns how many threads can run chunks of one call at a time, the caller included; 1 for NULL.
// It is for the size of scratch areas, never for how work is cut.
int plait_pool_threads(const plait_pool *pool);

// plait_pool_free ends the workers and waits for them.
void plait_pool_free(plait_pool *pool);

#endif
