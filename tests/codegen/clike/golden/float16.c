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
extern "C" __global__ void __launch_bounds__(64) main_kernel(const float* __restrict__ X0, unsigned short* __restrict__ Y0, const int p0) {
  const int i = (((int)blockIdx.y * (int)gridDim.x + (int)blockIdx.x) * 64 + (int)threadIdx.x);
  if (i < p0) {
    const float v0 = X0[i];
    const unsigned int v1 = half_bits(v0);
    const float v2 = half_value(v1);
    Y0[i] = (unsigned short)(v1);
  }
}
