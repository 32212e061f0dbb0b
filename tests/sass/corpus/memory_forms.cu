// Every way to touch global memory, each in one small kernel, so that every memory opcode and modifier occurs.
#include <cuda_runtime.h>
#include <cstdint>

#define LOAD_KERNEL(name, type, op, constraint, reg)                                     \
  extern "C" __global__ void name(const type* p, type* q) {                              \
    reg v;                                                                               \
    asm volatile(op " %0, [%1];" : "=" constraint(v) : "l"(p + threadIdx.x) : "memory"); \
    q[threadIdx.x] = static_cast<type>(v);                                               \
  }

LOAD_KERNEL(load_u8, uint8_t, "ld.global.u8", "r", uint32_t)
LOAD_KERNEL(load_s8, int8_t, "ld.global.s8", "r", int32_t)
LOAD_KERNEL(load_u16, uint16_t, "ld.global.u16", "h", uint16_t)
LOAD_KERNEL(load_s16, int16_t, "ld.global.s16", "h", int16_t)
LOAD_KERNEL(load_u32, uint32_t, "ld.global.u32", "r", uint32_t)
LOAD_KERNEL(load_u64, unsigned long long, "ld.global.u64", "l", unsigned long long)
LOAD_KERNEL(load_nc, uint32_t, "ld.global.nc.u32", "r", uint32_t)
LOAD_KERNEL(load_nc64, unsigned long long, "ld.global.nc.u64", "l", unsigned long long)
LOAD_KERNEL(load_cg, uint32_t, "ld.global.cg.u32", "r", uint32_t)
LOAD_KERNEL(load_cs, uint32_t, "ld.global.cs.u32", "r", uint32_t)
LOAD_KERNEL(load_cv, uint32_t, "ld.global.cv.u32", "r", uint32_t)
LOAD_KERNEL(load_lu, uint32_t, "ld.global.lu.u32", "r", uint32_t)
LOAD_KERNEL(load_volatile, uint32_t, "ld.volatile.global.u32", "r", uint32_t)
LOAD_KERNEL(load_relaxed_cta, uint32_t, "ld.relaxed.cta.global.u32", "r", uint32_t)
LOAD_KERNEL(load_relaxed_gpu, uint32_t, "ld.relaxed.gpu.global.u32", "r", uint32_t)
LOAD_KERNEL(load_relaxed_sys, uint32_t, "ld.relaxed.sys.global.u32", "r", uint32_t)
LOAD_KERNEL(load_acquire_gpu, uint32_t, "ld.acquire.gpu.global.u32", "r", uint32_t)
LOAD_KERNEL(load_acquire_sys, uint32_t, "ld.acquire.sys.global.u32", "r", uint32_t)
LOAD_KERNEL(load_generic, uint32_t, "ld.u32", "r", uint32_t)
LOAD_KERNEL(load_generic_volatile, uint32_t, "ld.volatile.u32", "r", uint32_t)
LOAD_KERNEL(load_no_allocate, uint32_t, "ld.global.nc.L1::no_allocate.u32", "r", uint32_t)
LOAD_KERNEL(load_l2_256, uint32_t, "ld.global.L2::256B.u32", "r", uint32_t)
LOAD_KERNEL(load_evict_last, uint32_t, "ld.global.nc.L1::evict_last.u32", "r", uint32_t)

extern "C" __global__ void load_v4(const float4* p, float4* q) { q[threadIdx.x] = p[threadIdx.x]; }
extern "C" __global__ void load_v2_restrict(const float2* __restrict__ p, float2* __restrict__ q) {
  q[threadIdx.x] = p[threadIdx.x];
}
extern "C" __global__ void load_ldg(const int4* p, int4* q, int n) {
  for (int i = threadIdx.x; i < n; i += blockDim.x) q[i] = __ldg(p + i);
}
extern "C" __global__ void stores(uint8_t* a, uint16_t* b, uint32_t* c, unsigned long long* d, uint32_t v) {
  a[threadIdx.x] = static_cast<uint8_t>(v);
  b[threadIdx.x] = static_cast<uint16_t>(v);
  __stcs(c + threadIdx.x, v);
  __stcg(c + threadIdx.x + 64, v);
  __stwt(c + threadIdx.x + 128, v);
  d[threadIdx.x] = v;
  asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(c), "r"(v) : "memory");
  asm volatile("st.relaxed.sys.global.u32 [%0], %1;" ::"l"(c), "r"(v) : "memory");
  asm volatile("st.volatile.global.u32 [%0], %1;" ::"l"(c), "r"(v) : "memory");
  asm volatile("st.u32 [%0], %1;" ::"l"(c + 1), "r"(v) : "memory");
}
extern "C" __global__ void atomics(int* a, unsigned long long* b, float* f, double* d, int v) {
  const int old = atomicAdd(a, v);
  atomicMax(a + 1, old);
  atomicCAS(a + 2, old, v);
  atomicExch(a + 3, v);
  atomicAdd(b, 1ull);
  atomicCAS(b + 1, 1ull, static_cast<unsigned long long>(v));
  atomicAdd(f, 1.0f);
  a[threadIdx.x + 8] = static_cast<int>(atomicAdd(d, 2.0));
  atomicAdd_system(a + 4, 1);
  asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(a + 5) : "memory");
  asm volatile("red.add.u32 [%0], 1;" ::"l"(a + 6) : "memory");
  unsigned r;
  asm volatile("atom.add.acquire.gpu.u32 %0, [%1], 1;" : "=r"(r) : "l"(a + 7) : "memory");
  a[threadIdx.x + 64] = static_cast<int>(r);
}
extern "C" __global__ void shared_atomics(int* out) {
  __shared__ int s[64];
  s[threadIdx.x & 63] = 0;
  __syncthreads();
  atomicAdd(&s[threadIdx.x & 7], 1);
  atomicCAS(&s[8], 0, 1);
  atomicMin(&s[9], static_cast<int>(threadIdx.x));
  __syncthreads();
  out[threadIdx.x] = s[threadIdx.x & 63];
}
extern "C" __global__ void prefetches(const float* p, const char* bulk) {
  asm volatile("prefetch.global.L1 [%0];" ::"l"(p));
  asm volatile("prefetch.global.L2 [%0];" ::"l"(p + 32));
  asm volatile("prefetch.global.L2::evict_last [%0];" ::"l"(p + 64));
  asm volatile("prefetchu.L1 [%0];" ::"l"(p + 96));
  asm volatile("discard.global.L2 [%0], 128;" ::"l"(p + 128));
  asm volatile("applypriority.global.L2::evict_normal [%0], 128;" ::"l"(p + 160));
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], 1024;" ::"l"(bulk));
}
extern "C" __global__ void fences(int* p) {
  p[0] = 1;
  __threadfence_block();
  p[1] = 1;
  __threadfence();
  p[2] = 1;
  __threadfence_system();
  p[3] = 1;
  asm volatile("fence.proxy.async;" ::: "memory");
  p[4] = 1;
  asm volatile("fence.proxy.async.global;" ::: "memory");
  p[5] = 1;
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  p[6] = 1;
  asm volatile("fence.proxy.alias;" ::: "memory");
  p[7] = 1;
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  p[8] = 1;
  asm volatile("fence.acq_rel.cluster;" ::: "memory");
}
extern "C" __global__ void async_copies(const int4* p, int4* q) {
  __shared__ int4 s[256];
  const uint32_t at = static_cast<uint32_t>(__cvta_generic_to_shared(&s[threadIdx.x]));
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(at), "l"(p + threadIdx.x) : "memory");
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(at + 4096 - 4096), "l"(p + 7) : "memory");
  asm volatile("cp.async.ca.shared.global.L2::128B [%0], [%1], 8, 4;" ::"r"(at), "l"(p + 9) : "memory");
  asm volatile("cp.async.commit_group;");
  asm volatile("cp.async.wait_group 0;" ::: "memory");
  __syncthreads();
  q[threadIdx.x] = s[threadIdx.x ^ 1];
}
extern "C" __global__ void local_memory(const int* p, int* q, int n) {
  int a[40];
  for (int i = 0; i < 40; ++i) a[i] = p[i] * n;
  for (int i = 0; i < n; ++i) a[(a[i % 40] & 31) + 3] += i;
  q[threadIdx.x] = a[n % 40];
}
extern "C" __global__ void texture_and_surface(cudaTextureObject_t t, cudaSurfaceObject_t s, float* q) {
  const float a = tex2D<float>(t, static_cast<float>(threadIdx.x), 1.0f);
  const float b = tex1Dfetch<float>(t, static_cast<int>(threadIdx.x));
  const float c = tex2Dgather<float4>(t, 0.5f, 0.25f, 1).y;
  const float d = tex2DLod<float>(t, 0.5f, 0.25f, 1.0f);
  float e;
  surf2Dread(&e, s, 4, 5);
  surf2Dwrite(a + b + c + d, s, static_cast<int>(threadIdx.x) * 4, 3);
  q[threadIdx.x] = a + e;
}
__constant__ int table[64];
extern "C" __global__ void constant_table(const int* p, int* q) {
  q[threadIdx.x] = table[p[threadIdx.x] & 63] + table[5];
}
__device__ int counter;
extern "C" __global__ void device_variable(int* q) { q[threadIdx.x] = atomicAdd(&counter, 1); }
extern "C" __global__ void multimem(float* p, float* q) {
  float v;
  asm volatile("multimem.ld_reduce.relaxed.sys.global.add.f32 %0, [%1];" : "=f"(v) : "l"(p) : "memory");
  asm volatile("multimem.st.relaxed.sys.global.f32 [%0], %1;" ::"l"(q), "f"(v) : "memory");
  asm volatile("multimem.red.relaxed.sys.global.add.f32 [%0], %1;" ::"l"(q + 4), "f"(v) : "memory");
}
