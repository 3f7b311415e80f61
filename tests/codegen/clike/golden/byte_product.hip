extern "C" __global__ void __launch_bounds__(32) main_kernel(const unsigned char* __restrict__ X0, int* __restrict__ Y0, const int p0) {
  __shared__ int shared0[32];
  const int row = ((int)blockIdx.y * (int)gridDim.x + (int)blockIdx.x);
  {
    int v0 = 0;
    const int v2 = (row * p0);
    for (int k1 = (int)threadIdx.x; k1 < p0; k1 += 32) {
      const int v3 = (v2 + k1);
      const unsigned int v4 = X0[v3];
      const int v5 = (int)(v4);
      const int v6 = (v5 - 128);
      const int v7 = ((v6 << 24u) >> 24u);
      const int v8 = (v0 + v7);
      v0 = v8;
    }
    __syncthreads();
    shared0[(int)threadIdx.x] = v0;
    __syncthreads();
    for (int h = 0; h < 5; h += 1) {
      const int apart = 16 >> h;
      if ((int)threadIdx.x < apart) {
        const int v9 = shared0[(int)threadIdx.x];
        const int v10 = shared0[(int)threadIdx.x + apart];
        const int v11 = (v9 + v10);
        shared0[(int)threadIdx.x] = v11;
      }
      __syncthreads();
    }
    const int v12 = shared0[0];
    for (int j = (int)threadIdx.x; j < 1; j += 32) {
      Y0[row] = v12;
    }
  }
}

__device__ inline int dot4_s8s8(int d, unsigned int a, unsigned int b) {
#if defined(__gfx906__) || defined(__gfx908__) || defined(__gfx90a__) || defined(__gfx940__) || defined(__gfx941__) \
  || defined(__gfx942__) || defined(__gfx950__)
  return __builtin_amdgcn_sdot4((int)a, (int)b, d, false);
#elif defined(__GFX11__) || defined(__GFX12__)
  return __builtin_amdgcn_sudot4(true, (int)a, true, (int)b, d, false);
#else
  for (int i = 0; i < 32; i += 8) d += (int)(signed char)(a >> i) * (int)(signed char)(b >> i);
  return d;
#endif
}
typedef int i4 __attribute__((ext_vector_type(4)));
typedef signed char c4 __attribute__((ext_vector_type(4)));
extern "C" __global__ void __launch_bounds__(128) main_kernel(const unsigned char* __restrict__ X0, const signed char* __restrict__ X1, const unsigned char* __restrict__ X2, const int* __restrict__ X3, const int* __restrict__ X4, const signed char* __restrict__ X5, int* __restrict__ Y0, const int p0, const int p1, const int p2, const int p3) {
  __shared__ unsigned int shared0[1024];
  __shared__ unsigned int shared1[1024];
  const int z = (int)blockIdx.z;
  const int m0 = (int)blockIdx.y * 64;
  const int n0 = (int)blockIdx.x * 64;
  const int r0 = ((int)threadIdx.x / 16) * 8;
  const int c0 = ((int)threadIdx.x % 16) * 4;
  const int row = m0 + r0;
  const int column = n0 + c0;
  int total0 = 0;
  int total1 = 0;
  int total2 = 0;
  int total3 = 0;
  int total4 = 0;
  int total5 = 0;
  int total6 = 0;
  int total7 = 0;
  int total8 = 0;
  int total9 = 0;
  int total10 = 0;
  int total11 = 0;
  int total12 = 0;
  int total13 = 0;
  int total14 = 0;
  int total15 = 0;
  int total16 = 0;
  int total17 = 0;
  int total18 = 0;
  int total19 = 0;
  int total20 = 0;
  int total21 = 0;
  int total22 = 0;
  int total23 = 0;
  int total24 = 0;
  int total25 = 0;
  int total26 = 0;
  int total27 = 0;
  int total28 = 0;
  int total29 = 0;
  int total30 = 0;
  int total31 = 0;
  for (int k0 = 0; k0 < p3; k0 += 16) {
    for (int s = (int)threadIdx.x; s < 1024; s += 128) {
      const int line = s / 16;
      const int place = s % 16;
      const int gk0 = (k0 + place) * 4;
      const int gm0 = m0 + line;
      const int gk = gk0;
      const int gm = gm0;
      shared0[(line) * 16 + place] = 0u;
      const int v32 = (gm * p0);
      const int v33 = (v32 + gk);
      if (gk < p0 && gm < p1) {
        shared0[(line) * 16 + place] = (((const unsigned int*)X0)[v33 >> 2] ^ 0x80808080u);
      }
    }
    for (int s = (int)threadIdx.x; s < 256; s += 128) {
      const int line = (s % 16) * 4;
      const int place = s / 16;
      const int gk0 = (k0 + place) * 4;
      const int gn0 = n0 + line;
      const int gn = gn0;
      unsigned int word34 = 0u;
      {
        const int gk = gk0 + 0;
        if (gk < p0 && gn < p2) {
          const int v38 = (gk * p2);
          const int v39 = (v38 + gn);
          word34 = ((const unsigned int*)X1)[v39 >> 2];
        }
      }
      unsigned int word35 = 0u;
      {
        const int gk = gk0 + 1;
        if (gk < p0 && gn < p2) {
          const int v40 = (gk * p2);
          const int v41 = (v40 + gn);
          word35 = ((const unsigned int*)X1)[v41 >> 2];
        }
      }
      unsigned int word36 = 0u;
      {
        const int gk = gk0 + 2;
        if (gk < p0 && gn < p2) {
          const int v42 = (gk * p2);
          const int v43 = (v42 + gn);
          word36 = ((const unsigned int*)X1)[v43 >> 2];
        }
      }
      unsigned int word37 = 0u;
      {
        const int gk = gk0 + 3;
        if (gk < p0 && gn < p2) {
          const int v44 = (gk * p2);
          const int v45 = (v44 + gn);
          word37 = ((const unsigned int*)X1)[v45 >> 2];
        }
      }
      shared1[place * 64 + line + 0] = (((word34 >> 0u) & 255u) << 0u) | (((word35 >> 0u) & 255u) << 8u) | (((word36 >> 0u) & 255u) << 16u) | (((word37 >> 0u) & 255u) << 24u);
      shared1[place * 64 + line + 1] = (((word34 >> 8u) & 255u) << 0u) | (((word35 >> 8u) & 255u) << 8u) | (((word36 >> 8u) & 255u) << 16u) | (((word37 >> 8u) & 255u) << 24u);
      shared1[place * 64 + line + 2] = (((word34 >> 16u) & 255u) << 0u) | (((word35 >> 16u) & 255u) << 8u) | (((word36 >> 16u) & 255u) << 16u) | (((word37 >> 16u) & 255u) << 24u);
      shared1[place * 64 + line + 3] = (((word34 >> 24u) & 255u) << 0u) | (((word35 >> 24u) & 255u) << 8u) | (((word36 >> 24u) & 255u) << 16u) | (((word37 >> 24u) & 255u) << 24u);
    }
    __syncthreads();
    for (int k = 0; k < 16; k += 1) {
      const unsigned int v46 = shared0[(r0 + 0) * 16 + k];
      const unsigned int v47 = shared0[(r0 + 1) * 16 + k];
      const unsigned int v48 = shared0[(r0 + 2) * 16 + k];
      const unsigned int v49 = shared0[(r0 + 3) * 16 + k];
      const unsigned int v50 = shared0[(r0 + 4) * 16 + k];
      const unsigned int v51 = shared0[(r0 + 5) * 16 + k];
      const unsigned int v52 = shared0[(r0 + 6) * 16 + k];
      const unsigned int v53 = shared0[(r0 + 7) * 16 + k];
      const unsigned int v54 = shared1[k * 64 + c0 + 0];
      const unsigned int v55 = shared1[k * 64 + c0 + 1];
      const unsigned int v56 = shared1[k * 64 + c0 + 2];
      const unsigned int v57 = shared1[k * 64 + c0 + 3];
      total0 = dot4_s8s8(total0, v46, v54);
      total1 = dot4_s8s8(total1, v46, v55);
      total2 = dot4_s8s8(total2, v46, v56);
      total3 = dot4_s8s8(total3, v46, v57);
      total4 = dot4_s8s8(total4, v47, v54);
      total5 = dot4_s8s8(total5, v47, v55);
      total6 = dot4_s8s8(total6, v47, v56);
      total7 = dot4_s8s8(total7, v47, v57);
      total8 = dot4_s8s8(total8, v48, v54);
      total9 = dot4_s8s8(total9, v48, v55);
      total10 = dot4_s8s8(total10, v48, v56);
      total11 = dot4_s8s8(total11, v48, v57);
      total12 = dot4_s8s8(total12, v49, v54);
      total13 = dot4_s8s8(total13, v49, v55);
      total14 = dot4_s8s8(total14, v49, v56);
      total15 = dot4_s8s8(total15, v49, v57);
      total16 = dot4_s8s8(total16, v50, v54);
      total17 = dot4_s8s8(total17, v50, v55);
      total18 = dot4_s8s8(total18, v50, v56);
      total19 = dot4_s8s8(total19, v50, v57);
      total20 = dot4_s8s8(total20, v51, v54);
      total21 = dot4_s8s8(total21, v51, v55);
      total22 = dot4_s8s8(total22, v51, v56);
      total23 = dot4_s8s8(total23, v51, v57);
      total24 = dot4_s8s8(total24, v52, v54);
      total25 = dot4_s8s8(total25, v52, v55);
      total26 = dot4_s8s8(total26, v52, v56);
      total27 = dot4_s8s8(total27, v52, v57);
      total28 = dot4_s8s8(total28, v53, v54);
      total29 = dot4_s8s8(total29, v53, v55);
      total30 = dot4_s8s8(total30, v53, v56);
      total31 = dot4_s8s8(total31, v53, v57);
    }
    __syncthreads();
  }
  const unsigned int v62 = X2[0];
  const int v63 = (int)(v62);
  const int v64 = (v63 - 128);
  const int v71 = (v64 * 100);
  for (int r = 0; r < 8; r += 1) {
    const int sum58 = ((r == 0) ? total0 : ((r == 1) ? total4 : ((r == 2) ? total8 : ((r == 3) ? total12 : ((r == 4) ? total16 : ((r == 5) ? total20 : ((r == 6) ? total24 : total28)))))));
    const int sum59 = ((r == 0) ? total1 : ((r == 1) ? total5 : ((r == 2) ? total9 : ((r == 3) ? total13 : ((r == 4) ? total17 : ((r == 5) ? total21 : ((r == 6) ? total25 : total29)))))));
    const int sum60 = ((r == 0) ? total2 : ((r == 1) ? total6 : ((r == 2) ? total10 : ((r == 3) ? total14 : ((r == 4) ? total18 : ((r == 5) ? total22 : ((r == 6) ? total26 : total30)))))));
    const int sum61 = ((r == 0) ? total3 : ((r == 1) ? total7 : ((r == 2) ? total11 : ((r == 3) ? total15 : ((r == 4) ? total19 : ((r == 5) ? total23 : ((r == 6) ? total27 : total31)))))));
    const int gm = row + r;
    if (gm < p1) {
      const int v70 = X4[gm];
      const int v72 = (v70 - v71);
      const int v95 = (gm * p2);
      if (column + 0 < p2) {
        const int four = (column + 0) / 4;
        const int v66 = (four * 4);
        const i4 w65 = ((const i4*)X3)[v66 >> 2];
        const int v67 = w65.x;
        const int v68 = (v64 * v67);
        const int v69 = (sum58 - v68);
        const c4 w73 = ((const c4*)X5)[v66 >> 2];
        const int v74 = w73.x;
        const int v75 = (v72 * v74);
        const int v76 = (v69 - v75);
        const int v77 = w65.y;
        const int v78 = (v64 * v77);
        const int v79 = (sum59 - v78);
        const int v80 = w73.y;
        const int v81 = (v72 * v80);
        const int v82 = (v79 - v81);
        const int v83 = w65.z;
        const int v84 = (v64 * v83);
        const int v85 = (sum60 - v84);
        const int v86 = w73.z;
        const int v87 = (v72 * v86);
        const int v88 = (v85 - v87);
        const int v89 = w65.w;
        const int v90 = (v64 * v89);
        const int v91 = (sum61 - v90);
        const int v92 = w73.w;
        const int v93 = (v72 * v92);
        const int v94 = (v91 - v93);
        const int v96 = (v95 + v66);
        ((i4*)Y0)[(v96 >> 2u)] = (i4){v76, v82, v88, v94};
      }
    }
  }
}
