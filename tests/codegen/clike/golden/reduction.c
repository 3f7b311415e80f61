extern "C" __global__ void __launch_bounds__(256) main_kernel(const float* __restrict__ X0, float* __restrict__ Y0, const int p0) {
  __shared__ float shared0[8];
  const int row = ((int)blockIdx.y * (int)gridDim.x + (int)blockIdx.x);
  {
    float v0 = 0.0f;
    const int v2 = (row * p0);
    for (int k1 = (int)threadIdx.x; k1 < p0; k1 += 256) {
      const int v3 = (v2 + k1);
      const float v4 = X0[v3];
      const float v5 = (v4 * 2.0f);
      const float v6 = (v0 + v5);
      v0 = v6;
    }
    #pragma unroll
    for (int apart = 16; apart > 0; apart /= 2) {
      const float v7 = __shfl_xor_sync(0xffffffffu, v0, apart);
      const float v8 = (v0 + v7);
      v0 = v8;
    }
    __syncthreads();
    if ((int)threadIdx.x % 32 == 0) { shared0[(int)threadIdx.x / 32] = v0; }
    __syncthreads();
    const float v9 = shared0[0];
    const float v10 = shared0[1];
    const float v11 = (v9 + v10);
    const float v12 = shared0[2];
    const float v13 = (v11 + v12);
    const float v14 = shared0[3];
    const float v15 = (v13 + v14);
    const float v16 = shared0[4];
    const float v17 = (v15 + v16);
    const float v18 = shared0[5];
    const float v19 = (v17 + v18);
    const float v20 = shared0[6];
    const float v21 = (v19 + v20);
    const float v22 = shared0[7];
    const float v23 = (v21 + v22);
    for (int j = (int)threadIdx.x; j < 1; j += 256) {
      Y0[row] = v23;
    }
  }
}
