extern "C" __global__ void __launch_bounds__(256) main_kernel(const float* __restrict__ X0, float* __restrict__ Y0, const int p0) {
  __shared__ float shared0[256];
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
    __syncthreads();
    shared0[(int)threadIdx.x] = v0;
    __syncthreads();
    for (int h = 0; h < 8; h += 1) {
      const int apart = 128 >> h;
      if ((int)threadIdx.x < apart) {
        const float v7 = shared0[(int)threadIdx.x];
        const float v8 = shared0[(int)threadIdx.x + apart];
        const float v9 = (v7 + v8);
        shared0[(int)threadIdx.x] = v9;
      }
      __syncthreads();
    }
    const float v10 = shared0[0];
    for (int j = (int)threadIdx.x; j < 1; j += 256) {
      Y0[row] = v10;
    }
  }
}
