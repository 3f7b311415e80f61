extern "C" __global__ void __launch_bounds__(64) main_kernel(const float* __restrict__ X0, unsigned short* __restrict__ Y0, const int* __restrict__ P) {
  const int p0 = P[0];
  const int i = (((int)blockIdx.y * (int)gridDim.x + (int)blockIdx.x) * 64 + (int)threadIdx.x);
  if (i < p0) {
    const float v0 = X0[i];
    const unsigned int v1 = __float_as_uint(v0);
    const unsigned int v2 = (v1 & 0x7fffffffu);
    const unsigned int v3 = ((v2 + 4095u + ((v2 >> 13u) & 1u)) >> 13u);
    const unsigned int v4 = (v3 - 114688u);
    const float v5 = ((v2 < 947912704u) ? rintf(__uint_as_float(v2) * 1.6777216e+07f) : 0.0f);
    const unsigned int v6 = ((v2 < 947912704u) ? (unsigned int)(v5) : v4);
    const unsigned int v7 = ((v3 > 146431u) ? 31744u : v6);
    const unsigned int v8 = ((v1 >> 31u) * 32768u);
    const unsigned int v9 = (v7 | v8);
    const unsigned int v10 = ((v2 > 0x7f800000u) ? (32256u | v8) : v9);
    const unsigned int v11 = (v10 & 32767u);
    const float v12 = ((v11 < 1024u) ? ((float)(v11) * 5.9604645e-08f) : __uint_as_float(((v11 << 13u) + 939524096u)));
    const float v13 = ((v11 == 31744u) ? __uint_as_float(0x7f800000u) : v12);
    const float v14 = ((v11 > 31744u) ? __uint_as_float(0x7fc00000u) : v13);
    const float v15 = (((v10 & 32768u) != 0u) ? (-v14) : v14);
    Y0[i] = (unsigned short)(v10);
  }
}
