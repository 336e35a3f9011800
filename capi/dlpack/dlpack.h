// DLPack's structures for tensors in the memory of the host.
#ifndef PLAITK_DLPACK_H
#define PLAITK_DLPACK_H

#include <stdint.h>

// Makes a managed tensor, of version 1 or of the form from before versions. Its deleter ends the export and may be
// called from any thread. Returns NULL without memory.
void *plaitk_dlpack_new(void *data, int32_t ndim, int32_t code, int32_t bits, const int64_t *shape, const int64_t *strides,
                        int32_t versioned, uint64_t flags, int64_t export);

// The destructor of Python's capsules around managed tensors: it deletes one that nobody took.
void plaitk_dlpack_destroy(void *capsule);

// Calls the deleter of another library's managed tensor; both are addresses.
void plaitk_dlpack_delete(int64_t managed, int64_t deleter);

#endif
