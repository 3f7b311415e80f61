extern "C" __global__ void __launch_bounds__(32) main_kernel(const float* __restrict__ X0, float* __restrict__ Y0, const int p0) {
  __shared__ float shared0[32];
  __shared__ float shared1[128];
  const int row = ((int)blockIdx.y * (int)gridDim.x + (int)blockIdx.x);
  {
    float v0 = __uint_as_float(0xff800000u);
    const int v2 = (row * p0);
    for (int k1 = (int)threadIdx.x; k1 < p0; k1 += 32) {
      const int v3 = (v2 + k1);
      const float v4 = X0[v3];
      const float v5 = ((v0 > v4) ? v0 : v4);
      const unsigned int v6 = (__float_as_uint(v0) & 0x7fffffffu);
      const bool v7 = (v6 > 0x7f800000u);
      const float v8 = (v7 ? v0 : v5);
      v0 = v8;
    }
    __syncthreads();
    shared0[(int)threadIdx.x] = v0;
    __syncthreads();
    for (int h = 0; h < 5; h += 1) {
      const int apart = 16 >> h;
      if ((int)threadIdx.x < apart) {
        const float v9 = shared0[(int)threadIdx.x];
        const float v10 = shared0[(int)threadIdx.x + apart];
        const float v11 = ((v9 > v10) ? v9 : v10);
        const unsigned int v12 = (__float_as_uint(v9) & 0x7fffffffu);
        const bool v13 = (v12 > 0x7f800000u);
        const float v14 = (v13 ? v9 : v11);
        shared0[(int)threadIdx.x] = v14;
      }
      __syncthreads();
    }
    const float v15 = shared0[0];
    float v16 = 0.0f;
    for (int k17 = (int)threadIdx.x; k17 < p0; k17 += 32) {
      const int v18 = (v2 + k17);
      const float v19 = X0[v18];
      const float v20 = (v19 - v15);
      const float v21 = expf(v20);
      shared1[k17] = v21;
      const float v22 = (v16 + v21);
      v16 = v22;
    }
    __syncthreads();
    shared0[(int)threadIdx.x] = v16;
    __syncthreads();
    for (int h = 0; h < 5; h += 1) {
      const int apart = 16 >> h;
      if ((int)threadIdx.x < apart) {
        const float v23 = shared0[(int)threadIdx.x];
        const float v24 = shared0[(int)threadIdx.x + apart];
        const float v25 = (v23 + v24);
        shared0[(int)threadIdx.x] = v25;
      }
      __syncthreads();
    }
    const float v26 = shared0[0];
    for (int j = (int)threadIdx.x; j < p0; j += 32) {
      const float v27 = shared1[j];
      const float v28 = (v27 / v26);
      const int v29 = (v2 + j);
      Y0[v29] = v28;
    }
  }
}
