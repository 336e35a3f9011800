// The worker pool of one CPU device.
#ifndef PLAIT_POOL_H
#define PLAIT_POOL_H

#include <stdint.h>

typedef struct plait_pool plait_pool;

// A task runs one chunk of the work that `arg` describes.
typedef void (*plait_task)(void *arg, int64_t chunk);

// plait_parallel runs fn(arg, 0), ..., fn(arg, chunks-1), each exactly once, on the calling thread and the pool's
// workers. It returns when all are done. Threads take chunks dynamically and in order, so the result must not depend on
// which thread runs a chunk: callers split work by its shape alone. A NULL or busy pool runs everything on the calling
// thread. Tasks must not call plait_parallel with the same pool.
void plait_parallel(plait_pool *pool, int64_t chunks, plait_task fn, void *arg);

// plait_parallel_parts is plait_parallel for chunks of about equal size that do not wait for each other. Each thread begins
// with its part of them, the same one in calls with as many chunks: what one call leaves in a core's cache is there for the
// next. Threads that sleep are not woken for little work.
void plait_parallel_parts(plait_pool *pool, int64_t chunks, plait_task fn, void *arg);

// plait_pool_new starts threads-1 workers; the caller is the last thread. It returns NULL if threads <= 1 or no worker
// could be started.
plait_pool *plait_pool_new(int threads);

// plait_pool_threads returns how many threads can run chunks of one call, including the caller; 1 for NULL. Use it for
// the size of scratch memory, never to decide how work is split.
int plait_pool_threads(const plait_pool *pool);

// plait_pool_free stops the workers and waits for them.
void plait_pool_free(plait_pool *pool);

#endif
