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
extern "C" __global__ void __launch_bounds__(64) main_kernel(const float* __restrict__ X0, const float* __restrict__ X1, const float* __restrict__ X2, float* __restrict__ Y0, const int p0, const int p1, const int p2, const int p3, const int p4) {
  const int w = (((int)blockIdx.y * (int)gridDim.x + (int)blockIdx.x) * 64 + (int)threadIdx.x);
  if (w < p0) {
    const int v0 = (w / p1);
    const int a0 = v0;
    const int v1 = (w / p2);
    const int v2 = (v1 % p3);
    const int a1 = v2;
    const int v3 = (w % p2);
    const int a2 = v3;
    const int v5 = (a0 * p0);
    const int v6 = (a1 * p4);
    const int v7 = (v5 + v6);
    const int v8 = (a2 * 4);
    const int v9 = (v7 + v8);
    const float4 w4 = ((const float4*)X0)[v9 >> 2];
    const float v10 = w4.x;
    const float v11 = X1[a1];
    const float v12 = (v10 + v11);
    const float v13 = maximum(v12, 0.0f);
    const float4 w14 = ((const float4*)X2)[v8 >> 2];
    const float v15 = w14.x;
    const float v16 = (v13 * v15);
    const float v17 = w4.y;
    const float v18 = (v17 + v11);
    const float v19 = maximum(v18, 0.0f);
    const float v20 = w14.y;
    const float v21 = (v19 * v20);
    const float v22 = w4.z;
    const float v23 = (v22 + v11);
    const float v24 = maximum(v23, 0.0f);
    const float v25 = w14.z;
    const float v26 = (v24 * v25);
    const float v27 = w4.w;
    const float v28 = (v27 + v11);
    const float v29 = maximum(v28, 0.0f);
    const float v30 = w14.w;
    const float v31 = (v29 * v30);
    ((float4*)Y0)[w] = make_float4(v16, v21, v26, v31);
  }
}
