extern "C" __global__ void __launch_bounds__(64) main_kernel(const int* __restrict__ X0, int* __restrict__ Y0, const int p0, const int p1) {
  const int line = (((int)blockIdx.y * (int)gridDim.x + (int)blockIdx.x) * 64 + (int)threadIdx.x);
  if (line < p0) {
    int v0 = 0;
    const int v1 = (line * p1);
    for (int s = 0; s < p1; s += 1) {
      const int j = s;
      const int v2 = (v1 + j);
      const int v3 = X0[v2];
      const int v4 = (v0 + v3);
      v0 = v4;
      Y0[v2] = v0;
    }
  }
}

extern "C" __global__ void __launch_bounds__(64) main_kernel(const int* __restrict__ X0, int* __restrict__ Y0, const int p0) {
  const int i = (((int)blockIdx.y * (int)gridDim.x + (int)blockIdx.x) * 64 + (int)threadIdx.x);
  if (i < p0) {
    const int v0 = X0[i];
    Y0[i] = v0;
  }
}
