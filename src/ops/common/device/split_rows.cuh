// Split-K sums meet in the shared memory of a cluster, whose CTAs are the splits of one tile of 128 columns: every CTA
// sends its sums of token t to CTA t % splits, which adds them in ascending order of the splits.
//
// The copies between CTAs go through the copy engine and complete on the receiver's barrier, so that nobody needs a
// fence of the whole GPU.
#pragma once

#include "ops/common/device/fp8_gemm.cuh"

namespace megartp::device {

template <class S, int kSplits>
struct SplitRows {
  static_assert(S::kTileN == 128);
  static constexpr uint32_t kStride = 132;  // floats of a row before it is sent: no two lanes of a store share a bank
  static constexpr uint32_t kReceived = (S::kTileM + kSplits - 1) / kSplits;  // rows
  // Besides GemmSmem: received rows [row, split, 128], a barrier.
  static constexpr uint32_t kBytes = kReceived * kSplits * 512 + 128;
  static_assert(kStride * S::kTileM * 4 <= S::kStages * S::kStageBytes);

  float* received;
  uint64_t* arrived;

  __device__ explicit SplitRows(const GemmSmem<S>& smem, uint32_t max_blocks) {
    // After the scales, at 128 bytes.
    const uint32_t scale_bytes = (max_blocks * (S::kTileM + 1) * 4 + 127) / 128 * 128;
    uint8_t* base = reinterpret_cast<uint8_t*>(smem.x_scale) + scale_bytes;
    received = reinterpret_cast<float*>(base);
    arrived = reinterpret_cast<uint64_t*>(base + kReceived * kSplits * 512);
  }
  // Dynamic shared memory of a kernel.
  __host__ __device__ static constexpr uint32_t smem_bytes(uint32_t max_blocks) {
    return 1024 + S::scale_offset() + (max_blocks * (S::kTileM + 1) * 4 + 127) / 128 * 128 + kBytes;
  }
  __device__ static uint32_t rows_of(uint32_t rank, uint32_t m_count) {
    return m_count > rank ? (m_count - rank - 1) / kSplits + 1 : 0;
  }

  // First thing in a kernel, by all threads: barriers, the frame's entry and prologue. m_count: rows of the M tile.
  template <class Frame>
  __device__ void start(const GemmSmem<S>& smem, const Frame& frame, uint32_t m_count) const {
    if (threadIdx.x == 0) {
      mbarrier_init(arrived, 1);
      mbarrier_init_fence();
      mbarrier_arrive_expect(arrived, rows_of(cluster_rank(), m_count) * (kSplits - 1) * 512);
      smem.init();
    }
    frame.enter();
    __syncthreads();
    // Nobody sends to a CTA whose barrier is not ready.
    if constexpr (kSplits > 1) cluster_sync_relaxed();
    frame.after_prologue();
  }
  // Last thing in a kernel, by all consumers.
  __device__ void finish() const {
    // Nobody leaves while the copy engine still reads its rows: they have arrived when every receiver has come here.
    if constexpr (kSplits > 1) cluster_sync_relaxed();
  }
  // Last of all, by all threads: without a cluster the loaders would else leave before anybody has waited for the
  // producers.
  __device__ void leave() const {
    if constexpr (kSplits == 1) __syncthreads();
  }
  // By all consumers, after multiply().
  __device__ void send(const GemmSmem<S>& smem, const GemmSums<S>& sums, uint32_t thread, uint32_t m_count) const {
    // Every stage has been consumed by everyone: the ring's memory is free for the rows.
    float* rows = reinterpret_cast<float*>(smem.ring);
    named_barrier(1, S::kConsumers);
    const uint32_t split = cluster_rank();
    // This CTA's own rows take no copy: the copy engine refuses one to oneself in a kernel without a cluster.
    sums.for_each(thread, [&](uint32_t n, uint32_t token, float v) {
      float* own = received + (token / kSplits * kSplits + split) * 128;
      (token % kSplits == split ? own : rows + token * kStride)[n] = v;
    });
    if constexpr (kSplits > 1) fence_async_shared();
    named_barrier(1, S::kConsumers);
    if constexpr (kSplits > 1) {
      for (uint32_t token = thread; token < m_count; token += S::kConsumers)
        if (token % kSplits != split)
          cluster_copy(received + (token / kSplits * kSplits + split) * 128, rows + token * kStride, 512, arrived,
                       token % kSplits);
    }
  }
  __device__ void wait() const { mbarrier_wait(arrived, 0); }
  // Row `i` of this CTA's (token rank + i * splits), four columns a lane.
  __device__ void sum(uint32_t i, float (&v)[4]) const {
    const float4* row = reinterpret_cast<const float4*>(received + i * kSplits * 128) + lane_index();
    const float4 first = row[0];
    v[0] = first.x, v[1] = first.y, v[2] = first.z, v[3] = first.w;
#pragma unroll
    for (int s = 1; s < kSplits; ++s) {
      const float4 x = row[s * 32];
      v[0] += x.x, v[1] += x.y, v[2] += x.z, v[3] += x.w;
    }
  }
};

}  // namespace megartp::device
