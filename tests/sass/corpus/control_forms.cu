// Control flow: loops, switches, calls that are not inlined, recursion, function pointers, early exits, traps,
// divergence.
#include <cuda_runtime.h>
#include <cstdint>

__device__ __noinline__ int helper(int a, int b) { return a % (b + 1) + (a << 3); }
__device__ __noinline__ int loads_in_helper(const int* p, int i) { return p[i] + p[i + 7] * 3; }
__device__ int recurse(int n) { return n <= 1 ? 1 : n * recurse(n - 1) + recurse(n - 2); }
typedef int (*Function)(int, int);
__device__ int add(int a, int b) { return a + b; }
__device__ int multiply(int a, int b) { return a * b; }
__device__ Function functions[2] = {add, multiply};

extern "C" __global__ void calls(const int* p, int* q, int n) {
  q[threadIdx.x] = helper(p[threadIdx.x], n) + loads_in_helper(p, n);
}
extern "C" __global__ void recursion(int* q, int n) { q[threadIdx.x] = recurse(n); }
extern "C" __global__ void function_pointers(int* q, int n) { q[threadIdx.x] = functions[n & 1](n, 3); }
extern "C" __global__ void many_cases(const int* p, int* q, int n) {
  int v = p[threadIdx.x];
  switch (n) {
    case 0: v += 3; break;
    case 1: v *= p[5]; break;
    case 2: v ^= p[6]; break;
    case 3: v = __popc(v); break;
    case 4: v = __clz(v) + p[1]; break;
    case 5: v /= p[2]; break;
    case 6: v %= p[3]; break;
    case 7: v = __brev(v); break;
    case 8: v = v * v * v; break;
    case 9: q[7] = v; break;
    case 10: v -= q[8]; break;
    default: v = 0;
  }
  q[threadIdx.x] = v;
}
extern "C" __global__ void loops(const float* p, float* q, int n, int m) {
  float sum = 0;
  for (int i = 0; i < n; ++i) {
    if (p[i] < 0) continue;
    for (int j = threadIdx.x; j < m; j += 32) {
      sum += p[j] * p[i];
      if (sum > 1e6f) break;
    }
    while (sum > 100.0f) sum = sum * 0.5f - p[i];
  }
  q[threadIdx.x] = sum;
}
extern "C" __global__ void divergence(const int* p, int* q, int n) {
  const int lane = threadIdx.x & 31;
  if (lane < n) {
    if (p[lane] & 1) {
      q[lane] = __shfl_sync(__activemask(), p[lane], 0);
    } else if (p[lane] & 2) {
      return;
    } else {
      q[lane] = __reduce_add_sync(__activemask(), p[lane]);
    }
    __syncwarp(__activemask());
  }
  if (__any_sync(0xffffffffu, p[lane] > 3)) q[lane + 32] = __ballot_sync(0xffffffffu, p[lane] > 4);
  if (__match_any_sync(0xffffffffu, p[lane]) == 1) q[lane + 64] = 5;
}
extern "C" __global__ void traps(const int* p, int* q) {
  if (p[0] < 0) __trap();
  if (p[1] < 0) asm volatile("exit;");
  if (p[2] < 0) __nanosleep(100);
  q[threadIdx.x] = static_cast<int>(clock64());
}
extern "C" __global__ void asserts(const int* p, int* q, int n) {
  if (n > 5) printf("%d\n", p[0]);
  q[threadIdx.x] = 1;
}
extern "C" __global__ void divisions(const double* p, double* q, const long long* a, long long* b, float* f) {
  q[threadIdx.x] = p[0] / p[1] + sqrt(p[2]) + exp(p[3]) + pow(p[4], p[5]) + sin(p[6]);
  b[threadIdx.x] = a[0] / a[1] + a[2] % a[3];
  f[threadIdx.x] = sinf(f[0]) + expf(f[1]) + f[2] / f[3] + tanhf(f[4]) + __powf(f[5], f[6]) + lgammaf(f[7]);
}
