extern "C" __global__ void __launch_bounds__(64) main_kernel(const float* __restrict__ X0, unsigned short* __restrict__ Y0, const int p0) {
  const int i = (((int)blockIdx.y * (int)gridDim.x + (int)blockIdx.x) * 64 + (int)threadIdx.x);
  if (i < p0) {
    const float v0 = X0[i];
    const unsigned int v1 = (unsigned int)__builtin_bit_cast(unsigned short, (_Float16)(v0));
    const float v2 = (float)__builtin_bit_cast(_Float16, (unsigned short)(v1));
    Y0[i] = (unsigned short)(v1);
  }
}
