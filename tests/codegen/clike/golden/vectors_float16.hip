typedef unsigned short us4 __attribute__((ext_vector_type(4)));
extern "C" __global__ void __launch_bounds__(64) main_kernel(const unsigned short* __restrict__ X0, unsigned short* __restrict__ Y0, const int p0) {
  const int w = (((int)blockIdx.y * (int)gridDim.x + (int)blockIdx.x) * 64 + (int)threadIdx.x);
  if (w < p0) {
    const int a0 = w;
    const int v1 = (a0 * 4);
    const us4 w0 = ((const us4*)X0)[v1 >> 2];
    const unsigned int v2 = (unsigned int)(w0.x);
    const float v3 = (float)__builtin_bit_cast(_Float16, (unsigned short)(v2));
    const float v4 = (v3 * 2.0f);
    const unsigned int v5 = (unsigned int)(w0.y);
    const float v6 = (float)__builtin_bit_cast(_Float16, (unsigned short)(v5));
    const float v7 = (v6 * 2.0f);
    const unsigned int v8 = (unsigned int)(w0.z);
    const float v9 = (float)__builtin_bit_cast(_Float16, (unsigned short)(v8));
    const float v10 = (v9 * 2.0f);
    const unsigned int v11 = (unsigned int)(w0.w);
    const float v12 = (float)__builtin_bit_cast(_Float16, (unsigned short)(v11));
    const float v13 = (v12 * 2.0f);
    const unsigned int v14 = (unsigned int)__builtin_bit_cast(unsigned short, (_Float16)(v4));
    const unsigned int v15 = (unsigned int)__builtin_bit_cast(unsigned short, (_Float16)(v7));
    const unsigned int v16 = (unsigned int)__builtin_bit_cast(unsigned short, (_Float16)(v10));
    const unsigned int v17 = (unsigned int)__builtin_bit_cast(unsigned short, (_Float16)(v13));
    ((us4*)Y0)[w] = (us4){(unsigned short)(v14), (unsigned short)(v15), (unsigned short)(v16), (unsigned short)(v17)};
  }
}
