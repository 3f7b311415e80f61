extern "C" __global__ void __launch_bounds__(64) main_kernel(const float* __restrict__ X0, const float* __restrict__ X1, float* __restrict__ Y0, const int p0, const int p1) {
  const int i = (((int)blockIdx.y * (int)gridDim.x + (int)blockIdx.x) * 64 + (int)threadIdx.x);
  if (i < p0) {
    const float v0 = X0[i];
    const int v1 = (i % p1);
    const float v2 = X1[v1];
    const float v3 = (v0 + v2);
    const float v4 = ((v3 > 0.0f) ? v3 : 0.0f);
    const unsigned int v5 = (__float_as_uint(v3) & 0x7fffffffu);
    const bool v6 = (v5 > 0x7f800000u);
    const float v7 = (v6 ? v3 : v4);
    Y0[i] = v7;
  }
}
