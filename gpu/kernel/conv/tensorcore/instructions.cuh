// What the programs need of the instruction set, from compute capability 8.0 on.

typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

#define INLINE static __device__ __forceinline__

// mma adds the product of a 16 x 16 and a 16 x 8 matrix to d.
INLINE void mma(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1) {
#if BF16
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
#else
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
#endif
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// load_matrices reads four matrices of 8 x 8 numbers, of which each lane gives the address of a row. With TRANSPOSED it transposes them.
template <bool TRANSPOSED> INLINE void load_matrices(u32 (&r)[4], const char *at) {
  const u32 address = (u32)__cvta_generic_to_shared(at);
  if constexpr (TRANSPOSED)
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];" : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(address) : "memory");
  else
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];" : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(address) : "memory");
}

// copy16 starts to copy 16 bytes to shared memory, or to fill them with zeros.
INLINE void copy16(char *to, const u16 *from, bool in) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"((u32)__cvta_generic_to_shared(to)), "l"(from), "r"(in ? 16 : 0) : "memory");
}

// copied waits until the thread's copies are complete.
INLINE void copied() { asm volatile("cp.async.wait_all;" ::: "memory"); }

// pack rounds two numbers to 16 bits.
INLINE u32 pack(float low, float high) {
  u32 w;
#if BF16
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(w) : "f"(high), "f"(low));
#else
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(w) : "f"(high), "f"(low));
#endif
  return w;
}
