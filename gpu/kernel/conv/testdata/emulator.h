// The instructions of instructions.cuh on a CPU: threads of a workgroup take turns as contexts of one thread, and wait for each other at
// barriers and in what a warp does together. Programs stop with an error where they read beyond an operand.
#include <ucontext.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

using std::min;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

#define INLINE static inline
#define __device__
#define __forceinline__
#define __shared__
#define __global__
#define __grid_constant__
#define __launch_bounds__(...)

struct uint4 { u32 x, y, z, w; };
struct float2 { float x, y; };
struct coordinates { u32 x, y; };
static coordinates threadIdx, blockIdx, gridDim;
alignas(128) uint4 tiles[100 << 6];

namespace emulator {
constexpr int ALL = 256, WARP = 32;
ucontext_t threads[ALL], scheduler;
bool ended[ALL];
int current, arrived, arrived_of_warp[ALL / WARP];
u64 turn, turn_of_warp[ALL / WARP];
u32 left[ALL][4], right[ALL][2];
const char *rows[ALL];
std::vector<std::pair<const char *, size_t>> operands;

void fail(const char *why) {
  fprintf(stderr, "workgroup %u, thread %d: %s\n", blockIdx.x, current, why);
  exit(1);
}

void wait(int &count, u64 &turn, int all) {
  const u64 now = turn;
  if (++count == all) {
    count = 0;
    turn++;
  }
  while (turn == now) swapcontext(&threads[current], &scheduler);
}

void wait_for_warp() { wait(arrived_of_warp[current / WARP], turn_of_warp[current / WARP], WARP); }

void check(const void *at, size_t bytes) {
  for (const auto &o : operands)
    if ((const char *)at >= o.first && (const char *)at + bytes <= o.first + o.second) return;
  fail("a read beyond all operands");
}

void check_shared(const void *at) {
  const size_t offset = (const char *)at - (const char *)tiles;
  if (offset % 16 != 0 || offset + 16 > sizeof tiles) fail("an address in shared memory");
}

float number(u32 bits) {
  bits <<= 16;
  float f;
  memcpy(&f, &bits, 4);
  return f;
}

u32 round(float f) {
  u32 bits;
  memcpy(&bits, &f, 4);
  return (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}
} // namespace emulator

static u32 __umulhi(u32 a, u32 b) { return (u64)a * b >> 32; }
static void __syncthreads() { emulator::wait(emulator::arrived, emulator::turn, emulator::ALL); }

template <class T> static T __ldg(const T *at) {
  if ((u64)at % sizeof(T) != 0) emulator::fail("an address that is not aligned");
  emulator::check(at, sizeof(T));
  return *at;
}

static u32 pack(float low, float high) { return emulator::round(low) | emulator::round(high) << 16; }

static void mma(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1) {
  using namespace emulator;
  memcpy(left[current], a, sizeof a);
  right[current][0] = b0, right[current][1] = b1;
  wait_for_warp();
  const int warp = current / WARP * WARP, lane = current % WARP;
  for (int i = 0; i < 4; i++) {
    const int row = lane / 4 + i / 2 * 8, column = lane % 4 * 2 + i % 2;
    for (int k = 0; k < 16; k++) {
      const int pair = k % 8 / 2, shift = k % 2 * 16;
      d[i] += number(left[warp + row % 8 * 4 + pair][row / 8 + k / 8 * 2] >> shift & 0xffff) * number(right[warp + column * 4 + pair][k / 8] >> shift & 0xffff);
    }
  }
  wait_for_warp();
}

template <bool TRANSPOSED> static void load_matrices(u32 (&r)[4], const char *at) {
  using namespace emulator;
  check_shared(at);
  rows[current] = at;
  wait_for_warp();
  const int warp = current / WARP * WARP, lane = current % WARP;
  for (int m = 0; m < 4; m++) {
    r[m] = 0;
    for (int j = 0; j < 2; j++) {
      const int row = TRANSPOSED ? lane % 4 * 2 + j : lane / 4, column = TRANSPOSED ? lane / 4 : lane % 4 * 2 + j;
      r[m] |= (u32)((const u16 *)rows[warp + m * 8 + row])[column] << (16 * j);
    }
  }
  wait_for_warp();
}

static void copy16(char *to, const u16 *from, bool in) {
  emulator::check_shared(to);
  if (!in) {
    memset(to, 0, 16);
    return;
  }
  if ((u64)from % 16 != 0) emulator::fail("an address that is no multiple of 16");
  emulator::check(from, 16);
  memcpy(to, from, 16);
}

static void copied() {}
