extern "C" __global__ void __launch_bounds__(64) main_kernel(const float* __restrict__ X0, float* __restrict__ Y0, int* __restrict__ Y1, const int p0, const int p1, const int p2) {
  const int i = (((int)blockIdx.y * (int)gridDim.x + (int)blockIdx.x) * 64 + (int)threadIdx.x);
  if (i < p0) {
    const float v0 = X0[i];
    const int v1 = (i % p1);
    const int v2 = (v1 - v1 % p2);
    const int v3 = (v2 + p2);
    const int stop = ((v3 < p1) ? v3 : p1);
    int v4 = v2;
    const int v5 = (i / p1);
    const int v6 = (v5 * p1);
    for (int j = v2; j < stop; j += 1) {
      const int v7 = (v6 + j);
      const float v8 = X0[v7];
      const unsigned int v9 = (__float_as_uint(v0) & 0x7fffffffu);
      const bool v10 = (v9 > 0x7f800000u);
      const unsigned int v11 = (__float_as_uint(v8) & 0x7fffffffu);
      const bool v12 = (v11 > 0x7f800000u);
      const unsigned int v13 = (__float_as_uint(v8) & 0x7fffffffu);
      const bool v14 = (v13 > 0x7f800000u);
      const unsigned int v15 = (__float_as_uint(v0) & 0x7fffffffu);
      const bool v16 = (v15 > 0x7f800000u);
      if (((v0 < v8) || (v12 && !v10)) || (!((v8 < v0) || (v16 && !v14)) && j < v1)) { v4 = v4 + 1; }
    }
    const int rank = v4;
    const int v17 = (v6 + rank);
    Y0[v17] = v0;
    Y1[v17] = v1;
  }
}

extern "C" __global__ void __launch_bounds__(64) main_kernel(const float* __restrict__ X0, const int* __restrict__ X1, float* __restrict__ Y0, int* __restrict__ Y1, const int p0, const int p1, const int p2, const int p3) {
  const int i = (((int)blockIdx.y * (int)gridDim.x + (int)blockIdx.x) * 64 + (int)threadIdx.x);
  if (i < p0) {
    const float v0 = X0[i];
    const int v1 = (i % p1);
    const int v2 = (v1 / p2);
    const int v3 = (v2 * p2);
    const bool v4 = ((v2 & 1) == 0);
    const int v5 = (v4 ? v3 + p2 : v3 - p2);
    const int v6 = ((v5 < p1) ? v5 : p1);
    const int v7 = (v6 + p2);
    const int stop = ((v7 < p1) ? v7 : p1);
    int low = v6;
    int high = stop;
    const int v8 = (i / p1);
    const int v9 = (v8 * p1);
    for (int s = 0; s < p3; s += 1) {
      if (low < high) {
        const int middle = low + (high - low) / 2;
        const int v10 = (v9 + middle);
        const float v11 = X0[v10];
        const unsigned int v12 = (__float_as_uint(v0) & 0x7fffffffu);
        const bool v13 = (v12 > 0x7f800000u);
        const unsigned int v14 = (__float_as_uint(v11) & 0x7fffffffu);
        const bool v15 = (v14 > 0x7f800000u);
        const unsigned int v16 = (__float_as_uint(v11) & 0x7fffffffu);
        const bool v17 = (v16 > 0x7f800000u);
        const unsigned int v18 = (__float_as_uint(v0) & 0x7fffffffu);
        const bool v19 = (v18 > 0x7f800000u);
        const bool v20 = (v4 ? ((v0 < v11) || (v15 && !v13)) : !((v11 < v0) || (v19 && !v17)));
        low = (v20 ? middle + 1 : low);
        high = (v20 ? high : middle);
      }
    }
    const int v21 = X1[i];
    const int rank = (v4 ? v3 : v6) + (v1 - v3) + (low - v6);
    const int v22 = (v9 + rank);
    Y0[v22] = v0;
    Y1[v22] = v21;
  }
}

extern "C" __global__ void __launch_bounds__(64) main_kernel(const float* __restrict__ X0, const int* __restrict__ X1, float* __restrict__ Y0, int* __restrict__ Y1, const int p0, const int p1, const int p2, const int p3) {
  const int i = (((int)blockIdx.y * (int)gridDim.x + (int)blockIdx.x) * 64 + (int)threadIdx.x);
  if (i < p0) {
    const float v0 = X0[i];
    const int v1 = (i % p1);
    const int v2 = (v1 / p2);
    const int v3 = (v2 * p2);
    const bool v4 = ((v2 & 1) == 0);
    const int v5 = (v4 ? v3 + p2 : v3 - p2);
    const int v6 = ((v5 < p1) ? v5 : p1);
    const int v7 = (v6 + p2);
    const int stop = ((v7 < p1) ? v7 : p1);
    int low = v6;
    int high = stop;
    const int v8 = (i / p1);
    const int v9 = (v8 * p1);
    for (int s = 0; s < p3; s += 1) {
      if (low < high) {
        const int middle = low + (high - low) / 2;
        const int v10 = (v9 + middle);
        const float v11 = X0[v10];
        const unsigned int v12 = (__float_as_uint(v0) & 0x7fffffffu);
        const bool v13 = (v12 > 0x7f800000u);
        const unsigned int v14 = (__float_as_uint(v11) & 0x7fffffffu);
        const bool v15 = (v14 > 0x7f800000u);
        const unsigned int v16 = (__float_as_uint(v11) & 0x7fffffffu);
        const bool v17 = (v16 > 0x7f800000u);
        const unsigned int v18 = (__float_as_uint(v0) & 0x7fffffffu);
        const bool v19 = (v18 > 0x7f800000u);
        const bool v20 = (v4 ? ((v0 < v11) || (v15 && !v13)) : !((v11 < v0) || (v19 && !v17)));
        low = (v20 ? middle + 1 : low);
        high = (v20 ? high : middle);
      }
    }
    const int v21 = X1[i];
    const int rank = (v4 ? v3 : v6) + (v1 - v3) + (low - v6);
    const int v22 = (v9 + rank);
    Y0[v22] = v0;
    Y1[v22] = v21;
  }
}

extern "C" __global__ void __launch_bounds__(64) main_kernel(const float* __restrict__ X0, const int* __restrict__ X1, float* __restrict__ Y0, int* __restrict__ Y1, const int p0, const int p1, const int p2, const int p3) {
  const int i = (((int)blockIdx.y * (int)gridDim.x + (int)blockIdx.x) * 64 + (int)threadIdx.x);
  if (i < p0) {
    const float v0 = X0[i];
    const int v1 = (i % p1);
    const int v2 = (v1 / p2);
    const int v3 = (v2 * p2);
    const bool v4 = ((v2 & 1) == 0);
    const int v5 = (v4 ? v3 + p2 : v3 - p2);
    const int v6 = ((v5 < p1) ? v5 : p1);
    const int v7 = (v6 + p2);
    const int stop = ((v7 < p1) ? v7 : p1);
    int low = v6;
    int high = stop;
    const int v8 = (i / p1);
    const int v9 = (v8 * p1);
    for (int s = 0; s < p3; s += 1) {
      if (low < high) {
        const int middle = low + (high - low) / 2;
        const int v10 = (v9 + middle);
        const float v11 = X0[v10];
        const unsigned int v12 = (__float_as_uint(v0) & 0x7fffffffu);
        const bool v13 = (v12 > 0x7f800000u);
        const unsigned int v14 = (__float_as_uint(v11) & 0x7fffffffu);
        const bool v15 = (v14 > 0x7f800000u);
        const unsigned int v16 = (__float_as_uint(v11) & 0x7fffffffu);
        const bool v17 = (v16 > 0x7f800000u);
        const unsigned int v18 = (__float_as_uint(v0) & 0x7fffffffu);
        const bool v19 = (v18 > 0x7f800000u);
        const bool v20 = (v4 ? ((v0 < v11) || (v15 && !v13)) : !((v11 < v0) || (v19 && !v17)));
        low = (v20 ? middle + 1 : low);
        high = (v20 ? high : middle);
      }
    }
    const int v21 = X1[i];
    const int rank = (v4 ? v3 : v6) + (v1 - v3) + (low - v6);
    const int v22 = (v9 + rank);
    Y0[v22] = v0;
    Y1[v22] = v21;
  }
}

extern "C" __global__ void __launch_bounds__(64) main_kernel(const float* __restrict__ X0, const int* __restrict__ X1, float* __restrict__ Y0, int* __restrict__ Y1, const int p0, const int p1, const int p2, const int p3) {
  const int i = (((int)blockIdx.y * (int)gridDim.x + (int)blockIdx.x) * 64 + (int)threadIdx.x);
  if (i < p0) {
    const float v0 = X0[i];
    const int v1 = (i % p1);
    const int v2 = (v1 / p2);
    const int v3 = (v2 * p2);
    const bool v4 = ((v2 & 1) == 0);
    const int v5 = (v4 ? v3 + p2 : v3 - p2);
    const int v6 = ((v5 < p1) ? v5 : p1);
    const int v7 = (v6 + p2);
    const int stop = ((v7 < p1) ? v7 : p1);
    int low = v6;
    int high = stop;
    const int v8 = (i / p1);
    const int v9 = (v8 * p1);
    for (int s = 0; s < p3; s += 1) {
      if (low < high) {
        const int middle = low + (high - low) / 2;
        const int v10 = (v9 + middle);
        const float v11 = X0[v10];
        const unsigned int v12 = (__float_as_uint(v0) & 0x7fffffffu);
        const bool v13 = (v12 > 0x7f800000u);
        const unsigned int v14 = (__float_as_uint(v11) & 0x7fffffffu);
        const bool v15 = (v14 > 0x7f800000u);
        const unsigned int v16 = (__float_as_uint(v11) & 0x7fffffffu);
        const bool v17 = (v16 > 0x7f800000u);
        const unsigned int v18 = (__float_as_uint(v0) & 0x7fffffffu);
        const bool v19 = (v18 > 0x7f800000u);
        const bool v20 = (v4 ? ((v0 < v11) || (v15 && !v13)) : !((v11 < v0) || (v19 && !v17)));
        low = (v20 ? middle + 1 : low);
        high = (v20 ? high : middle);
      }
    }
    const int v21 = X1[i];
    const int rank = (v4 ? v3 : v6) + (v1 - v3) + (low - v6);
    const int v22 = (v9 + rank);
    Y0[v22] = v0;
    Y1[v22] = v21;
  }
}

extern "C" __global__ void __launch_bounds__(64) main_kernel(const float* __restrict__ X0, const int* __restrict__ X1, float* __restrict__ Y0, int* __restrict__ Y1, const int p0, const int p1, const int p2, const int p3) {
  const int i = (((int)blockIdx.y * (int)gridDim.x + (int)blockIdx.x) * 64 + (int)threadIdx.x);
  if (i < p0) {
    const float v0 = X0[i];
    const int v1 = (i % p1);
    const int v2 = (v1 / p2);
    const int v3 = (v2 * p2);
    const bool v4 = ((v2 & 1) == 0);
    const int v5 = (v4 ? v3 + p2 : v3 - p2);
    const int v6 = ((v5 < p1) ? v5 : p1);
    const int v7 = (v6 + p2);
    const int stop = ((v7 < p1) ? v7 : p1);
    int low = v6;
    int high = stop;
    const int v8 = (i / p1);
    const int v9 = (v8 * p1);
    for (int s = 0; s < p3; s += 1) {
      if (low < high) {
        const int middle = low + (high - low) / 2;
        const int v10 = (v9 + middle);
        const float v11 = X0[v10];
        const unsigned int v12 = (__float_as_uint(v0) & 0x7fffffffu);
        const bool v13 = (v12 > 0x7f800000u);
        const unsigned int v14 = (__float_as_uint(v11) & 0x7fffffffu);
        const bool v15 = (v14 > 0x7f800000u);
        const unsigned int v16 = (__float_as_uint(v11) & 0x7fffffffu);
        const bool v17 = (v16 > 0x7f800000u);
        const unsigned int v18 = (__float_as_uint(v0) & 0x7fffffffu);
        const bool v19 = (v18 > 0x7f800000u);
        const bool v20 = (v4 ? ((v0 < v11) || (v15 && !v13)) : !((v11 < v0) || (v19 && !v17)));
        low = (v20 ? middle + 1 : low);
        high = (v20 ? high : middle);
      }
    }
    const int v21 = X1[i];
    const int rank = (v4 ? v3 : v6) + (v1 - v3) + (low - v6);
    const int v22 = (v9 + rank);
    Y0[v22] = v0;
    Y1[v22] = v21;
  }
}

extern "C" __global__ void __launch_bounds__(64) main_kernel(const float* __restrict__ X0, const int* __restrict__ X1, float* __restrict__ Y0, long long* __restrict__ Y1, const int p0, const int p1, const int p2, const int p3) {
  const int i = (((int)blockIdx.y * (int)gridDim.x + (int)blockIdx.x) * 64 + (int)threadIdx.x);
  if (i < p0) {
    const float v0 = X0[i];
    const int v1 = (i % p1);
    const int v2 = (v1 / p2);
    const int v3 = (v2 * p2);
    const bool v4 = ((v2 & 1) == 0);
    const int v5 = (v4 ? v3 + p2 : v3 - p2);
    const int v6 = ((v5 < p1) ? v5 : p1);
    const int v7 = (v6 + p2);
    const int stop = ((v7 < p1) ? v7 : p1);
    int low = v6;
    int high = stop;
    const int v8 = (i / p1);
    const int v9 = (v8 * p1);
    for (int s = 0; s < p3; s += 1) {
      if (low < high) {
        const int middle = low + (high - low) / 2;
        const int v10 = (v9 + middle);
        const float v11 = X0[v10];
        const unsigned int v12 = (__float_as_uint(v0) & 0x7fffffffu);
        const bool v13 = (v12 > 0x7f800000u);
        const unsigned int v14 = (__float_as_uint(v11) & 0x7fffffffu);
        const bool v15 = (v14 > 0x7f800000u);
        const unsigned int v16 = (__float_as_uint(v11) & 0x7fffffffu);
        const bool v17 = (v16 > 0x7f800000u);
        const unsigned int v18 = (__float_as_uint(v0) & 0x7fffffffu);
        const bool v19 = (v18 > 0x7f800000u);
        const bool v20 = (v4 ? ((v0 < v11) || (v15 && !v13)) : !((v11 < v0) || (v19 && !v17)));
        low = (v20 ? middle + 1 : low);
        high = (v20 ? high : middle);
      }
    }
    const int v21 = X1[i];
    const int rank = (v4 ? v3 : v6) + (v1 - v3) + (low - v6);
    const int v22 = (v9 + rank);
    Y0[v22] = v0;
    Y1[v22] = (long long)(v21);
  }
}

extern "C" __global__ void __launch_bounds__(64) main_kernel(const long long* __restrict__ X0, long long* __restrict__ Y0, const int p0) {
  const int i = (((int)blockIdx.y * (int)gridDim.x + (int)blockIdx.x) * 64 + (int)threadIdx.x);
  if (i < p0) {
    const long long v0 = X0[i];
    Y0[i] = v0;
  }
}
