#include "scratch.h"

#include <pthread.h>
#include <stdlib.h>
#if defined(__linux__)
#include <sys/mman.h>
#endif

#define PAGE 4096
#define HUGE_PAGE (2 << 20)

static void *block_new(size_t bytes) {
  size_t align = bytes >= HUGE_PAGE ? HUGE_PAGE : PAGE;
  void *p = aligned_alloc(align, (bytes + align - 1) / align * align);
#if defined(__linux__)
  // A packed operand is read from end to end again and again: few entries of the page table should cover it.
  if (p != NULL && align == HUGE_PAGE) madvise(p, (bytes + align - 1) / align * align, MADV_HUGEPAGE);
#endif
  return p;
}

static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_key_t key;
static __thread struct {
  void *block;
  size_t bytes;
} local;

static void make_key(void) { pthread_key_create(&key, free); }

void *gemm_local(size_t bytes) {
  if (bytes <= local.bytes) return local.block;
  pthread_once(&once, make_key);
  free(local.block);
  local.block = block_new(bytes);
  local.bytes = local.block == NULL ? 0 : bytes;
  pthread_setspecific(key, local.block);  // so that the end of the thread frees it
  return local.block;
}

// Blocks between products. A few are kept, because mapping and clearing fresh pages takes as long as a small product.
#define KEPT 4
#define KEPT_BYTES ((size_t)32 << 20)

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct {
  void *block;
  size_t bytes;
} kept[KEPT];

#define HEADER PAGE  // in front of a block, so that the block itself stays aligned

void *gemm_take(size_t bytes) {
  size_t need = bytes + HEADER;
  char *got = NULL;
  pthread_mutex_lock(&mutex);
  int best = -1;
  for (int i = 0; i < KEPT; i++) {
    if (kept[i].block != NULL && kept[i].bytes >= need && (best < 0 || kept[i].bytes < kept[best].bytes)) best = i;
  }
  if (best >= 0) {
    got = kept[best].block;
    need = kept[best].bytes;
    kept[best].block = NULL;
  }
  pthread_mutex_unlock(&mutex);
  if (got == NULL) got = block_new(need);
  if (got == NULL) return NULL;
  *(size_t *)got = need;
  return got + HEADER;
}

void gemm_give(void *block) {
  if (block == NULL) return;
  char *p = (char *)block - HEADER;
  size_t bytes = *(size_t *)p;
  void *drop = p;
  if (bytes <= KEPT_BYTES) {
    pthread_mutex_lock(&mutex);
    int slot = 0;  // an empty one, or else the smallest
    for (int i = 0; i < KEPT; i++) {
      if (kept[i].block == NULL) {
        slot = i;
        break;
      }
      if (kept[i].bytes < kept[slot].bytes) slot = i;
    }
    if (kept[slot].block == NULL || kept[slot].bytes < bytes) {
      drop = kept[slot].block;
      kept[slot].block = p;
      kept[slot].bytes = bytes;
    }
    pthread_mutex_unlock(&mutex);
  }
  free(drop);
}
