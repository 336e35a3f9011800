// Micro-kernels, packing and epilogue for one element type and instruction set. variants.c includes this file with:
//   T       float or double, the accumulator type
//   LANES   elements of a vector: 2, 4, 8 or 16
//   MR, NV  the tile: MR rows of NV vectors; MR is at most LANES or a multiple of it
//   LOAD_PART(p, n), STORE_PART(p, n, x)  load or store the first n < LANES elements of a vector
//   TARGET  the attribute that enables the instruction set
//   NAME(x) the name of x in this set

#define LOCAL TARGET static inline __attribute__((always_inline, unused))

typedef T NAME(vec) __attribute__((vector_size(LANES * sizeof(T)), aligned(sizeof(T)), may_alias));
#define V NAME(vec)

// Loads the first n elements of a vector and zeroes the others.
LOCAL V NAME(load_part)(const T *from, int64_t n) {
  if (n == LANES) return *(const V *)from;
  return LOAD_PART(from, n);
}

LOCAL void NAME(store_part)(T *to, int64_t n, V x) {
  if (n == LANES) *(V *)to = x;
  else STORE_PART(to, n, x);
}

#include "micro.h"

#include "dot.h"
#include "pack.h"
#include "epilogue.h"

static const gemm_kernels NAME(kernels) = {
    .size = sizeof(T),
    .lanes = LANES,
    .mr = MR,
    .nv = NV,
    .pair = 1,
    .unit = 1,
    .a_lanes = 1,
    .depth_bytes = 2048,
    .micro =
        {
            NAMES(micro, 1),
            NAMES(micro, 2),
#if NV > 2
            NAMES(micro, 3),
#endif
        },
    .unpacked =
        {
            NAMES(unpacked, 1),
            NAMES(unpacked, 2),
#if NV > 2
            NAMES(unpacked, 3),
#endif
        },
    .dots = {NAME(dots_1), NAME(dots_2), NAME(dots_3), NAME(dots_4)},
    .pack = NAME(pack),
    .pack_a = NAME(pack),
    .epilogue = NAME(epilogue),
};

#undef T
#undef LOAD_PART
#undef STORE_PART
#undef LANES
#undef MR
#undef NV
#undef TARGET
#undef NAME
#undef LOCAL
#undef V
#undef NAMES
#undef NAMES_5
#undef NAMES_7
#undef NAMES_9
