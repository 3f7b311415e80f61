extern "C" __global__ void __launch_bounds__(64) main_kernel(const unsigned int* __restrict__ X0, unsigned int* __restrict__ Y0, const int p0, const int p1, const int p2, const int p3) {
  const int w = (((int)blockIdx.y * (int)gridDim.x + (int)blockIdx.x) * 64 + (int)threadIdx.x);
  if (w < p0) {
    unsigned int v0 = 0u;
    for (int e = 0; e < 8; e += 1) {
      int i = (w * 8 + e);
      if (i > p1) { i = p1; }
      const int v1 = (i % p2);
      const int v2 = (v1 * p3);
      const int v3 = (i / p2);
      const int v4 = (v2 + v3);
      const unsigned int v5 = (X0[v4 >> 3u] >> ((v4 & 7) * 4));
      const int v6 = (int)(v5);
      const int v7 = ((v6 << 28u) >> 28u);
      const int v8 = (v7 + 1);
      const int v9 = ((v8 << 28u) >> 28u);
      const unsigned int v10 = (unsigned int)(v9);
      const unsigned int v11 = (v10 & 15u);
      v0 = v0 | (v11 << (e * 4));
    }
    Y0[w] = v0;
  }
}
