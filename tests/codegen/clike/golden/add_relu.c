__device__ __forceinline__ float minimum(float x, float y) {
  float r;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(x), "f"(y));
  return r;
}
__device__ __forceinline__ float maximum(float x, float y) {
  float r;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(x), "f"(y));
  return r;
}
extern "C" __global__ void __launch_bounds__(64) main_kernel(const float* __restrict__ X0, const float* __restrict__ X1, float* __restrict__ Y0, const int p0, const int p1) {
  const int i = (((int)blockIdx.y * (int)gridDim.x + (int)blockIdx.x) * 64 + (int)threadIdx.x);
  if (i < p0) {
    const float v0 = X0[i];
    const int v1 = (i % p1);
    const float v2 = X1[v1];
    const float v3 = (v0 + v2);
    const float v4 = maximum(v3, 0.0f);
    Y0[i] = v4;
  }
}
