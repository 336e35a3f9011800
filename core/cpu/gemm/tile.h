// Micro kernels, packing and storing for one element type and instruction set. Included by variants.c with:
//   T       float or double, the accumulating type
//   LANES   elements of a vector: 2, 4, 8 or 16
//   MR, NV  the tile: MR rows of NV vectors; MR is at most LANES or a multiple of it
//   LOAD_PART(p, n), STORE_PART(p, n, x)  the first n < LANES elements of a vector
//   TARGET  the attribute that turns the instruction set on
//   NAME(x) names of this set

#define LOCAL TARGET static inline __attribute__((always_inline, unused))

typedef T NAME(vec) __attribute__((vector_size(LANES * sizeof(T)), aligned(sizeof(T)), may_alias));
#define V NAME(vec)

// The first n elements of a vector, the others zero; whole vectors take the short way.
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
#include "finish.h"

static const gemm_kernels NAME(kernels) = {
    .size = sizeof(T),
    .lanes = LANES,
    .mr = MR,
    .nv = NV,
    .micro =
        {
            NAMES(micro, 1),
            NAMES(micro, 2),
#if NV > 2
            NAMES(micro, 3),
#endif
        },
    .direct =
        {
            NAMES(direct, 1),
            NAMES(direct, 2),
#if NV > 2
            NAMES(direct, 3),
#endif
        },
    .dots = {NAME(dots_1), NAME(dots_2), NAME(dots_3), NAME(dots_4)},
    .pack = NAME(pack),
    .finish = NAME(finish),
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
