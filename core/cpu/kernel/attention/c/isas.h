// Includes the tile functions of element type T for every instruction set.
#ifdef T

#ifdef PLAIT_ATTENTION_X86
#define ISA v4
#define TARGET __attribute__((target("arch=x86-64-v4")))
#define VECTOR 64
#define NV 4
#include "tile.h"
#undef ISA
#undef TARGET
#undef VECTOR
#undef NV

#define ISA v3
#define TARGET __attribute__((target("arch=x86-64-v3")))
#define VECTOR 32
#define NV 2
#include "tile.h"
#undef ISA
#undef TARGET
#undef VECTOR
#undef NV
#endif

#define ISA base
#define TARGET
#define VECTOR 16
#define NV 2
#include "tile.h"
#undef ISA
#undef TARGET
#undef VECTOR
#undef NV

#endif
