extern "C" __global__ void __launch_bounds__(64) main_kernel(const float* __restrict__ X0, const long long* __restrict__ X1, float* __restrict__ Y0, const int p0, const int p1, const int p2, const int p3, unsigned int* __restrict__ S) {
  const int i = (((int)blockIdx.y * (int)gridDim.x + (int)blockIdx.x) * 64 + (int)threadIdx.x);
  if (i < p0) {
    const int v0 = (i / p1);
    const long long v1 = X1[v0];
    if ((v1 < 0ll) || (v1 >= (long long)(p2))) { S[0] = 1u; }
    const long long v2 = ((v1 > (long long)(p3)) ? (long long)(p3) : v1);
    const long long v3 = ((v2 < 0ll) ? 0ll : v2);
    const int v4 = (int)(v3);
    const int v5 = (v4 * p1);
    const int v6 = (i % p1);
    const int v7 = (v5 + v6);
    const float v8 = X0[v7];
    Y0[i] = v8;
  }
}
