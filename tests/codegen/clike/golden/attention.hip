typedef float f4 __attribute__((ext_vector_type(4)));
extern "C" __global__ void __launch_bounds__(64) main_kernel(const float* __restrict__ X0, const float* __restrict__ X1, const float* __restrict__ X2, float* __restrict__ Y0, const int* __restrict__ P) {
  const int p0 = P[0];
  const int p1 = P[1];
  const int p2 = P[2];
  const int p3 = P[3];
  const int line = ((int)blockIdx.y * (int)gridDim.x + (int)blockIdx.x) * 64 + (int)threadIdx.x;
  const int i = ((line < p1) ? line : p0);
  const int z = i / p2;
  const int gm = i % p2;
  float highest = __uint_as_float(0xff800000u);
  float powers = 0.0f;
  f4 sum0 = (f4){0.0f, 0.0f, 0.0f, 0.0f};
  f4 sum1 = (f4){0.0f, 0.0f, 0.0f, 0.0f};
  const int v2 = (z * p1);
  const int v3 = (gm * p3);
  const int v4 = (v2 + v3);
  const f4 w1 = ((const f4*)X0)[v4 >> 2];
  const int v9 = (v4 + 4);
  const f4 w8 = ((const f4*)X0)[v9 >> 2];
  for (int gn = 0; gn < p2; gn += 1) {
    float v0 = 0.0f;
    const int v6 = (gn * p3);
    const int v7 = (v2 + v6);
    const f4 w5 = ((const f4*)X1)[v7 >> 2];
    v0 = v0 + (w1.x * w5.x + w1.y * w5.y + w1.z * w5.z + w1.w * w5.w);
    const int v11 = (v7 + 4);
    const f4 w10 = ((const f4*)X1)[v11 >> 2];
    v0 = v0 + (w8.x * w10.x + w8.y * w10.y + w8.z * w10.z + w8.w * w10.w);
    const float v12 = (v0 * 0.25f);
    if (!(v12 == __uint_as_float(0xff800000u))) {
      if (v12 > highest) {
        const float less = expf(highest - v12);
        powers = powers * less;
        sum0.x *= less; sum0.y *= less; sum0.z *= less; sum0.w *= less;
        sum1.x *= less; sum1.y *= less; sum1.z *= less; sum1.w *= less;
        highest = v12;
      }
      const float power = expf(v12 - highest);
      powers = powers + power;
      const f4 w13 = ((const f4*)X2)[v7 >> 2];
      sum0 += power * w13;
      const f4 w14 = ((const f4*)X2)[v11 >> 2];
      sum1 += power * w14;
    }
  }
  const int v15 = (i * p3);
  if (line < p1) {
    Y0[v15 + 0] = sum0.x / powers;
    Y0[v15 + 1] = sum0.y / powers;
    Y0[v15 + 2] = sum0.z / powers;
    Y0[v15 + 3] = sum0.w / powers;
    Y0[v15 + 4] = sum1.x / powers;
    Y0[v15 + 5] = sum1.y / powers;
    Y0[v15 + 6] = sum1.z / powers;
    Y0[v15 + 7] = sum1.w / powers;
  }
}

extern "C" __global__ void __launch_bounds__(64) main_kernel(const float* __restrict__ X0, float* __restrict__ Y0, const int* __restrict__ P) {
  const int p0 = P[0];
  const int i = (((int)blockIdx.y * (int)gridDim.x + (int)blockIdx.x) * 64 + (int)threadIdx.x);
  if (i < p0) {
    const float v0 = X0[i];
    Y0[i] = v0;
  }
}
