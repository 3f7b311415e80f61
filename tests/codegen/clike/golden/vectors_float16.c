__device__ __forceinline__ unsigned int half_bits(float x) {
  unsigned short bits;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(x));
  return bits;
}
__device__ __forceinline__ float half_value(unsigned int bits) {
  float x;
  asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"((unsigned short)bits));
  return x;
}
extern "C" __global__ void __launch_bounds__(64) main_kernel(const unsigned short* __restrict__ X0, unsigned short* __restrict__ Y0, const int p0) {
  const int w = (((int)blockIdx.y * (int)gridDim.x + (int)blockIdx.x) * 64 + (int)threadIdx.x);
  if (w < p0) {
    const int a0 = w;
    const int v1 = (a0 * 4);
    const ushort4 w0 = ((const ushort4*)X0)[v1 >> 2];
    const unsigned int v2 = (unsigned int)(w0.x);
    const float v3 = half_value(v2);
    const float v4 = (v3 * 2.0f);
    const unsigned int v5 = (unsigned int)(w0.y);
    const float v6 = half_value(v5);
    const float v7 = (v6 * 2.0f);
    const unsigned int v8 = (unsigned int)(w0.z);
    const float v9 = half_value(v8);
    const float v10 = (v9 * 2.0f);
    const unsigned int v11 = (unsigned int)(w0.w);
    const float v12 = half_value(v11);
    const float v13 = (v12 * 2.0f);
    const unsigned int v14 = half_bits(v4);
    const unsigned int v15 = half_bits(v7);
    const unsigned int v16 = half_bits(v10);
    const unsigned int v17 = half_bits(v13);
    ((ushort4*)Y0)[w] = make_ushort4(v14, v15, v16, v17);
  }
}
