// Arithmetic of every type, matrix instructions of a warp, conversions and bit operations.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include <mma.h>
#include <cstdint>

extern "C" __global__ void integers(const int* p, int* q, const unsigned* u, const long long* l, long long* m) {
  const int a = p[0], b = p[1], c = p[2];
  q[0] = a * b + c;
  q[1] = max(min(a, b), c);
  q[2] = abs(a) + __clz(b) + __popc(c) + __ffs(a) + static_cast<int>(__brev(u[0]));
  q[3] = (a & b) | (~c ^ a);
  q[4] = __funnelshift_l(a, b, c) + __byte_perm(a, b, c) + static_cast<int>(__umulhi(u[1], u[2]));
  q[5] = __sad(a, b, 3u) + __dp4a(a, b, c) + static_cast<int>(__vabsdiffu4(u[3], u[4]));
  q[6] = (a >> 3) + (b << 5) + static_cast<int>(u[5] >> (c & 31));
  q[7] = static_cast<signed char>(a) + static_cast<short>(b);
  m[0] = l[0] * l[1] + l[2];
  m[1] = l[0] > l[1] ? l[2] >> 7 : l[3] << 9;
  m[2] = __mul64hi(l[4], l[5]);
}
extern "C" __global__ void floats(const float* p, float* q, const double* d, double* e, int* i) {
  q[0] = fmaf(p[0], p[1], p[2]) + fminf(p[3], p[4]) + rsqrtf(p[5]) + __expf(p[6]) + __sinf(p[7]);
  q[1] = p[0] > p[1] ? ceilf(p[2]) : truncf(p[3]);
  q[2] = static_cast<float>(d[0]) + static_cast<float>(i[0]) + static_cast<float>(static_cast<uint8_t>(i[1]));
  e[0] = d[1] * d[2] + static_cast<double>(p[8]) + static_cast<double>(i[2]);
  e[1] = d[3] > d[4] ? fmin(d[5], d[6]) : floor(d[7]);
  i[3] = static_cast<int>(p[9]) + static_cast<int>(d[8]);
  reinterpret_cast<long long*>(i)[4] = static_cast<long long>(p[10]) + static_cast<long long>(d[9]);
}
extern "C" __global__ void halves(const __half2* p, __half2* q, const __nv_bfloat162* b, __nv_bfloat162* c,
                                  const float* f, __nv_fp8_e4m3* e, unsigned* u) {
  q[0] = __hfma2(p[0], p[1], p[2]);
  q[1] = __hmax2(p[3], p[4]);
  q[2] = __hadd2(p[5], __hmul2(p[6], p[7]));
  q[3] = __hgt2(p[8], p[9]);
  q[4] = h2exp(p[10]);
  c[0] = __hfma2(b[0], b[1], b[2]);
  c[1] = __floats2bfloat162_rn(f[0], f[1]);
  e[0] = __nv_fp8_e4m3(f[2]);
  q[5] = static_cast<__half2>(__nv_fp8x2_e4m3(make_float2(f[3], f[4])));
  u[0] = __hbeq2(p[11], p[12]) ? 1u : 0u;
}
extern "C" __global__ void warp_matrices(const __half* a, const __half* b, float* c, const signed char* ia,
                                         const signed char* ib, int* ic, const double* da, const double* db,
                                         double* dc) {
  using namespace nvcuda::wmma;
  fragment<matrix_a, 16, 16, 16, __half, row_major> fa;
  fragment<matrix_b, 16, 16, 16, __half, col_major> fb;
  fragment<accumulator, 16, 16, 16, float> fc;
  fill_fragment(fc, 0.0f);
  load_matrix_sync(fa, a, 16);
  load_matrix_sync(fb, b, 16);
  mma_sync(fc, fa, fb, fc);
  store_matrix_sync(c, fc, 16, mem_row_major);
  fragment<matrix_a, 16, 16, 16, signed char, row_major> ga;
  fragment<matrix_b, 16, 16, 16, signed char, col_major> gb;
  fragment<accumulator, 16, 16, 16, int> gc;
  fill_fragment(gc, 0);
  load_matrix_sync(ga, ia, 16);
  load_matrix_sync(gb, ib, 16);
  mma_sync(gc, ga, gb, gc);
  store_matrix_sync(ic, gc, 16, mem_row_major);
  fragment<matrix_a, 8, 8, 4, double, row_major> ha;
  fragment<matrix_b, 8, 8, 4, double, col_major> hb;
  fragment<accumulator, 8, 8, 4, double> hc;
  fill_fragment(hc, 0.0);
  load_matrix_sync(ha, da, 4);
  load_matrix_sync(hb, db, 4);
  mma_sync(hc, ha, hb, hc);
  store_matrix_sync(dc, hc, 8, mem_row_major);
}
extern "C" __global__ void shuffles(const int* p, int* q) {
  int v = p[threadIdx.x];
  for (int i = 16; i > 0; i /= 2) v += __shfl_xor_sync(0xffffffffu, v, i);
  v += __shfl_up_sync(0xffffffffu, v, 1) + __shfl_down_sync(0xffffffffu, v, 2) + __shfl_sync(0xffffffffu, v, v & 31);
  q[threadIdx.x] = __reduce_max_sync(0xffffffffu, v) + __all_sync(0xffffffffu, v);
}
