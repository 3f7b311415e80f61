extern "C" __global__ void __launch_bounds__(64) main_kernel(const float* __restrict__ X0, const float* __restrict__ X1, float* __restrict__ Y0, const int p0, const int p1, const int p2, const int p3, const int p4) {
  __shared__ float4 shared0[64];
  __shared__ float4 shared1[128];
  const int z = (int)blockIdx.z;
  const int m0 = (int)blockIdx.y * 16;
  const int n0 = (int)blockIdx.x * 32;
  const int r0 = ((int)threadIdx.x / 8) * 2;
  const int c0 = ((int)threadIdx.x % 8) * 4;
  const int row = m0 + r0;
  const int column = n0 + c0;
  float4 total0 = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
  float4 total1 = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
  const int v3 = (z * p1);
  for (int k0 = 0; k0 < p1; k0 += 16) {
    for (int s = (int)threadIdx.x; s < 64; s += 64) {
      const int line = s / 4;
      const int place = s % 4;
      {
        const int gk0 = k0 + place * 4;
        const int gm0 = m0 + line;
        const int gk = gk0;
        const int gm = gm0;
        const int v2 = (gm * p0);
        const int v4 = (v3 + gk);
        const int v5 = (v2 + v4);
        shared0[line * 4 + place] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        if (gk < p1 && gm < p2) {
          shared0[line * 4 + place] = ((const float4*)X0)[v5 >> 2];
        }
      }
    }
    for (int s = (int)threadIdx.x; s < 128; s += 64) {
      const int line = s / 8;
      const int place = s % 8;
      {
        const int gk0 = k0 + line;
        const int gn0 = n0 + place * 4;
        const int gk = gk0;
        const int gn = gn0;
        const int v6 = (v3 + gk);
        const int v7 = (v6 * p3);
        const int v8 = (v7 + gn);
        shared1[line * 8 + place] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        if (gk < p1 && gn < p3) {
          shared1[line * 8 + place] = ((const float4*)X1)[v8 >> 2];
        }
      }
    }
    __syncthreads();
    for (int k = 0; k < 4; k += 1) {
      const float4 y9 = shared1[(k * 4 + 0) * 8 + c0 / 4 + 0];
      const float4 y10 = shared1[(k * 4 + 1) * 8 + c0 / 4 + 0];
      const float4 y11 = shared1[(k * 4 + 2) * 8 + c0 / 4 + 0];
      const float4 y12 = shared1[(k * 4 + 3) * 8 + c0 / 4 + 0];
      const float4 x13 = shared0[(r0 + 0) * 4 + k];
      total0.x += x13.x * y9.x; total0.y += x13.x * y9.y; total0.z += x13.x * y9.z; total0.w += x13.x * y9.w;
      total0.x += x13.y * y10.x; total0.y += x13.y * y10.y; total0.z += x13.y * y10.z; total0.w += x13.y * y10.w;
      total0.x += x13.z * y11.x; total0.y += x13.z * y11.y; total0.z += x13.z * y11.z; total0.w += x13.z * y11.w;
      total0.x += x13.w * y12.x; total0.y += x13.w * y12.y; total0.z += x13.w * y12.z; total0.w += x13.w * y12.w;
      const float4 x14 = shared0[(r0 + 1) * 4 + k];
      total1.x += x14.x * y9.x; total1.y += x14.x * y9.y; total1.z += x14.x * y9.z; total1.w += x14.x * y9.w;
      total1.x += x14.y * y10.x; total1.y += x14.y * y10.y; total1.z += x14.y * y10.z; total1.w += x14.y * y10.w;
      total1.x += x14.z * y11.x; total1.y += x14.z * y11.y; total1.z += x14.z * y11.z; total1.w += x14.z * y11.w;
      total1.x += x14.w * y12.x; total1.y += x14.w * y12.y; total1.z += x14.w * y12.z; total1.w += x14.w * y12.w;
    }
    __syncthreads();
  }
  const int v16 = (z * p4);
  for (int r = 0; r < 2; r += 1) {
    const float4 sum15 = ((r == 0) ? total0 : total1);
    const int gm = row + r;
    if (gm < p2) {
      const int v17 = (gm * p3);
      const int v18 = (v16 + v17);
      if (column + 0 < p3) {
        const int four = (column + 0) / 4;
        const int v19 = (four * 4);
        const int v20 = (v18 + v19);
        ((float4*)Y0)[(v20 >> 2u)] = make_float4(sum15.x, sum15.y, sum15.z, sum15.w);
      }
    }
  }
}

extern "C" __global__ void __launch_bounds__(64) main_kernel(const float* __restrict__ X0, const float* __restrict__ X1, float* __restrict__ Y0, const int p0, const int p1, const int p2) {
  const int i = (((int)blockIdx.y * (int)gridDim.x + (int)blockIdx.x) * 64 + (int)threadIdx.x);
  if (i < p0) {
    float v0 = 0.0f;
    const int v3 = (i / p1);
    const int v4 = (v3 * p1);
    const int v6 = (i % p1);
    for (int k1 = 0; k1 < p2; k1 += 1) {
      const int v2 = (k1 * p0);
      const int v5 = (v2 + v4);
      const int v7 = (v5 + v6);
      const float v8 = X0[v7];
      const float v9 = (v0 + v8);
      v0 = v9;
    }
    const float v10 = X1[v6];
    const float v11 = (v0 + v10);
    Y0[i] = v11;
  }
}
