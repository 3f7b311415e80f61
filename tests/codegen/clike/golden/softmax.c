extern "C" __global__ void __launch_bounds__(32) main_kernel(const float* __restrict__ X0, float* __restrict__ Y0, const int* __restrict__ P) {
  __shared__ float shared0[32];
  const int p0 = P[0];
  const int p1 = P[1];
  const int row = ((int)blockIdx.y * (int)gridDim.x + (int)blockIdx.x);
  if (row < p1) {
    const int v0 = (row * p0);
    float v3 = __uint_as_float(0xff800000u);
    for (int k4 = (int)threadIdx.x; k4 < p0; k4 += 32) {
      const int v5 = (v0 + k4);
      const float v6 = X0[v5];
      const float v7 = ((v3 > v6) ? v3 : v6);
      const unsigned int v8 = (__float_as_uint(v3) & 0x7fffffffu);
      const bool v9 = (v8 > 0x7f800000u);
      const float v10 = (v9 ? v3 : v7);
      v3 = v10;
    }
    __syncthreads();
    shared0[(int)threadIdx.x] = v3;
    __syncthreads();
    for (int h = 0; h < 5; h += 1) {
      const int apart = 16 >> h;
      if ((int)threadIdx.x < apart) {
        const float v11 = shared0[(int)threadIdx.x];
        const float v12 = shared0[(int)threadIdx.x + apart];
        const float v13 = ((v11 > v12) ? v11 : v12);
        const unsigned int v14 = (__float_as_uint(v11) & 0x7fffffffu);
        const bool v15 = (v14 > 0x7f800000u);
        const float v16 = (v15 ? v11 : v13);
        shared0[(int)threadIdx.x] = v16;
      }
      __syncthreads();
    }
    const float v17 = shared0[0];
    float v20 = 0.0f;
    for (int k21 = (int)threadIdx.x; k21 < p0; k21 += 32) {
      const int v22 = (v0 + k21);
      const float v23 = X0[v22];
      const float v24 = (v23 - v17);
      const float v25 = expf(v24);
      const float v26 = (v20 + v25);
      v20 = v26;
    }
    __syncthreads();
    shared0[(int)threadIdx.x] = v20;
    __syncthreads();
    for (int h = 0; h < 5; h += 1) {
      const int apart = 16 >> h;
      if ((int)threadIdx.x < apart) {
        const float v27 = shared0[(int)threadIdx.x];
        const float v28 = shared0[(int)threadIdx.x + apart];
        const float v29 = (v27 + v28);
        shared0[(int)threadIdx.x] = v29;
      }
      __syncthreads();
    }
    const float v30 = shared0[0];
    for (int j = (int)threadIdx.x; j < p0; j += 32) {
      const int v1 = (v0 + j);
      const float v2 = X0[v1];
      const float v18 = (v2 - v17);
      const float v19 = expf(v18);
      const float v31 = (v19 / v30);
      Y0[v1] = v31;
    }
  }
}
