// Bulk copies, tensor copies, mbarriers, clusters, register reallocation and warpgroup matrix multiply.
#include <cuda.h>
#include <cuda_runtime.h>
#include <cstdint>

__device__ __forceinline__ uint32_t smem(const void* p) { return static_cast<uint32_t>(__cvta_generic_to_shared(p)); }

__device__ __forceinline__ void mbarrier_wait(uint32_t bar, uint32_t parity) {
  asm volatile(
      "{\n.reg .pred done;\nAGAIN:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@done bra FINISHED;\nbra AGAIN;\nFINISHED:\n}" ::"r"(bar),
      "r"(parity)
      : "memory");
}

extern "C" __global__ void tensor_copies(const __grid_constant__ CUtensorMap in,
                                         const __grid_constant__ CUtensorMap out, int x, int y) {
  __shared__ alignas(128) float tile[1024];
  __shared__ alignas(8) uint64_t bar;
  if (threadIdx.x == 0) {
    asm volatile("prefetch.tensormap [%0];" ::"l"(&in));
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(smem(&bar)));
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], 4096;" ::"r"(smem(&bar)) : "memory");
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::"r"(
            smem(tile)),
        "l"(&in), "r"(x), "r"(y), "r"(smem(&bar))
        : "memory");
  }
  __syncthreads();
  mbarrier_wait(smem(&bar), 0);
  tile[threadIdx.x] += 1.0f;
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  __syncthreads();
  if (threadIdx.x == 0) {
    asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%1, %2}], [%3];" ::"l"(&out), "r"(x),
                 "r"(y), "r"(smem(tile))
                 : "memory");
    asm volatile(
        "cp.reduce.async.bulk.tensor.2d.global.shared::cta.add.tile.bulk_group [%0, {%1, %2}], [%3];" ::"l"(&out),
        "r"(x), "r"(y), "r"(smem(tile))
        : "memory");
    asm volatile("cp.async.bulk.commit_group;");
    asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
    asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
  }
}
extern "C" __global__ void tensor_prefetch(const __grid_constant__ CUtensorMap in, int x) {
  asm volatile("cp.async.bulk.prefetch.tensor.2d.L2.global [%0, {%1, %2}];" ::"l"(&in), "r"(x), "r"(0) : "memory");
}
extern "C" __global__ void tensor_multicast(const __grid_constant__ CUtensorMap in, int x, int y) {
  __shared__ alignas(128) float tile[1024];
  __shared__ alignas(8) uint64_t bar;
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster "
      "[%0], [%1, {%2, %3}], [%4], %5;" ::"r"(smem(tile)),
      "l"(&in), "r"(x), "r"(y), "r"(smem(&bar)), "h"(static_cast<uint16_t>(3))
      : "memory");
}
extern "C" __global__ void tensor_map_in_memory(const CUtensorMap* in, int x, int y) {
  __shared__ alignas(128) float tile[1024];
  __shared__ alignas(8) uint64_t bar;
  asm volatile("fence.proxy.tensormap::generic.acquire.gpu [%0], 128;" ::"l"(in) : "memory");
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::"r"(
          smem(tile)),
      "l"(in), "r"(x), "r"(y), "r"(smem(&bar))
      : "memory");
}
extern "C" __global__ void bulk_copies(const char* in, char* out, float* sum) {
  __shared__ alignas(128) char buffer[4096];
  __shared__ alignas(8) uint64_t bar;
  if (threadIdx.x == 0) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(smem(&bar)));
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], 4096;" ::"r"(smem(&bar)) : "memory");
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], 4096, [%2];" ::"r"(smem(buffer)),
        "l"(in), "r"(smem(&bar))
        : "memory");
  }
  mbarrier_wait(smem(&bar), 0);
  if (threadIdx.x == 0) {
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], 4096;" ::"l"(out), "r"(smem(buffer))
                 : "memory");
    asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], 4096;" ::"l"(sum),
                 "r"(smem(buffer))
                 : "memory");
    asm volatile("cp.async.bulk.commit_group;");
    asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
  }
}
extern "C" __global__ void __cluster_dims__(2, 1, 1) cluster_traffic(int* out) {
  __shared__ int s[32];
  __shared__ alignas(8) uint64_t bar;
  uint32_t remote;
  asm volatile("mapa.shared::cluster.u32 %0, %1, 1;" : "=r"(remote) : "r"(smem(&s[threadIdx.x & 31])));
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
  int v;
  asm volatile("ld.shared::cluster.u32 %0, [%1];" : "=r"(v) : "r"(remote) : "memory");
  asm volatile("st.shared::cluster.u32 [%0], %1;" ::"r"(remote), "r"(v + 1) : "memory");
  asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.u32 [%0], %1, [%2];" ::"r"(remote), "r"(v),
               "r"(smem(&bar))
               : "memory");
  asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" ::"r"(remote) : "memory");
  out[threadIdx.x] = v;
}
extern "C" __global__ void named_barriers(int* out, int id) {
  __shared__ int s[64];
  s[threadIdx.x & 63] = id;
  asm volatile("bar.sync 1, 64;" ::: "memory");
  out[0] = s[1];
  asm volatile("bar.arrive 2, 64;" ::: "memory");
  asm volatile("bar.sync %0;" ::"r"(id) : "memory");
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(id * 32) : "memory");
  out[1] = __syncthreads_or(s[2]);
  out[2] = __syncthreads_count(s[3]);
  __syncwarp();
  out[3] = s[4];
}
extern "C" __global__ void elected(int* out) {
  uint32_t p;
  asm volatile("{\n.reg .pred p;\nelect.sync _|p, 0xffffffff;\nselp.u32 %0, 1, 0, p;\n}" : "=r"(p));
  if (p != 0) out[0] = 1;
}
extern "C" __global__ void __launch_bounds__(256) register_split(const float* p, float* q) {
  if (threadIdx.x < 128) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
    q[threadIdx.x] = p[threadIdx.x];
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
    q[threadIdx.x] = p[threadIdx.x] * 2.0f;
  }
}
extern "C" __global__ void warpgroup_multiply(float* q, uint64_t a, uint64_t b) {
  float d0 = 0, d1 = 0, d2 = 0, d3 = 0;
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
  asm volatile("wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%0, %1, %2, %3}, %4, %5, 1, 1, 1, 0, 0;"
               : "+f"(d0), "+f"(d1), "+f"(d2), "+f"(d3)
               : "l"(a), "l"(b)
               : "memory");
  asm volatile("wgmma.mma_async.sync.aligned.m64n8k32.f32.e4m3.e4m3 {%0, %1, %2, %3}, %4, %5, 1, 1, 1;"
               : "+f"(d0), "+f"(d1), "+f"(d2), "+f"(d3)
               : "l"(a), "l"(b)
               : "memory");
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
  asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
  q[threadIdx.x * 4] = d0;
  q[threadIdx.x * 4 + 1] = d1;
  q[threadIdx.x * 4 + 2] = d2;
  q[threadIdx.x * 4 + 3] = d3;
}
extern "C" __global__ void griddepcontrol(const float* p, float* q, int pdl) {
  if (pdl) asm volatile("griddepcontrol.wait;" ::: "memory");
  q[threadIdx.x] = p[threadIdx.x];
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}
extern "C" __global__ void matrix_in_shared(const uint32_t* p, uint32_t* q) {
  __shared__ alignas(16) uint32_t s[512];
  s[threadIdx.x] = p[threadIdx.x];
  __syncthreads();
  uint32_t a, b, c, d;
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(a), "=r"(b), "=r"(c), "=r"(d)
               : "r"(smem(s) + threadIdx.x * 16)
               : "memory");
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(smem(s) + threadIdx.x * 16),
               "r"(a), "r"(b), "r"(c), "r"(d)
               : "memory");
  q[threadIdx.x] = s[threadIdx.x] + a;
}
