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
extern "C" __global__ void __launch_bounds__(32) main_kernel(const float* __restrict__ X0, float* __restrict__ Y0, const int p0) {
  __shared__ float shared0[128];
  const int row = ((int)blockIdx.y * (int)gridDim.x + (int)blockIdx.x);
  {
    float v0 = __uint_as_float(0xff800000u);
    const int v2 = (row * p0);
    for (int k1 = (int)threadIdx.x; k1 < p0; k1 += 32) {
      const int v3 = (v2 + k1);
      const float v4 = X0[v3];
      const float v5 = maximum(v0, v4);
      v0 = v5;
    }
    #pragma unroll
    for (int apart = 16; apart > 0; apart /= 2) {
      const float v6 = __shfl_xor_sync(0xffffffffu, v0, apart);
      const float v7 = maximum(v0, v6);
      v0 = v7;
    }
    float v8 = 0.0f;
    for (int k9 = (int)threadIdx.x; k9 < p0; k9 += 32) {
      const int v10 = (v2 + k9);
      const float v11 = X0[v10];
      const float v12 = (v11 - v0);
      const float v13 = expf(v12);
      shared0[k9] = v13;
      const float v14 = (v8 + v13);
      v8 = v14;
    }
    #pragma unroll
    for (int apart = 16; apart > 0; apart /= 2) {
      const float v15 = __shfl_xor_sync(0xffffffffu, v8, apart);
      const float v16 = (v8 + v15);
      v8 = v16;
    }
    for (int j = (int)threadIdx.x; j < p0; j += 32) {
      const float v17 = shared0[j];
      const float v18 = (v17 / v8);
      const int v19 = (v2 + j);
      Y0[v19] = v18;
    }
  }
}
