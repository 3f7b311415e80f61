extern "C" __global__ void __launch_bounds__(64) main_kernel(const float* __restrict__ X0, float* __restrict__ Y0, long long* __restrict__ Y1, const int p0, const int p1) {
  const int i = (((int)blockIdx.y * (int)gridDim.x + (int)blockIdx.x) * 64 + (int)threadIdx.x);
  if (i < p0) {
    const float v0 = X0[i];
    const int v1 = (i % p1);
    int v2 = 0;
    const int v3 = (i / p1);
    const int v4 = (v3 * p1);
    for (int j = 0; j < p1; j += 1) {
      const int v5 = (v4 + j);
      const float v6 = X0[v5];
      const unsigned int v7 = (__float_as_uint(v6) & 0x7fffffffu);
      const bool v8 = (v7 > 0x7f800000u);
      const unsigned int v9 = (__float_as_uint(v0) & 0x7fffffffu);
      const bool v10 = (v9 > 0x7f800000u);
      const unsigned int v11 = (__float_as_uint(v0) & 0x7fffffffu);
      const bool v12 = (v11 > 0x7f800000u);
      const unsigned int v13 = (__float_as_uint(v6) & 0x7fffffffu);
      const bool v14 = (v13 > 0x7f800000u);
      if (((v6 < v0) || (v10 && !v8)) || (!((v0 < v6) || (v14 && !v12)) && j < v1)) { v2 = v2 + 1; }
    }
    const int rank = v2;
    const int v15 = (v4 + rank);
    Y0[v15] = v0;
    Y1[v15] = (long long)(v1);
  }
}

extern "C" __global__ void __launch_bounds__(64) main_kernel(const float* __restrict__ X0, float* __restrict__ Y0, const int p0) {
  const int i = (((int)blockIdx.y * (int)gridDim.x + (int)blockIdx.x) * 64 + (int)threadIdx.x);
  if (i < p0) {
    const float v0 = X0[i];
    Y0[i] = v0;
  }
}
