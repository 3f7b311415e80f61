__device__ __forceinline__ float minimum(float x, float y) {
  float r;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(x), "f"(y));
  return r;
}
__device__ __forceinline__ float maximum(float x, float y) {
  float r;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(x), "f"(y));
  return r;
}
extern "C" __global__ void __launch_bounds__(64) main_kernel(const float* __restrict__ X0, const float* __restrict__ X1, float* __restrict__ Y0, const int p0, const int p1, const int p2, const int p3, const int p4, const int p5, const int p6, const int p7) {
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
  for (int k0 = 0; k0 < p0; k0 += 16) {
    for (int s = (int)threadIdx.x; s < 64; s += 64) {
      const int line = s / 4;
      const int place = s % 4;
      {
        const int gk0 = k0 + place * 4;
        const int gm0 = m0 + line;
        float part2 = 0.0f;
        float part3 = 0.0f;
        float part4 = 0.0f;
        float part5 = 0.0f;
        {
          const int gm = gm0;
          const int v6 = ((gm > 4) ? 4 : gm);
          const int v7 = ((v6 < 0) ? 0 : v6);
          const int v8 = (v7 * p0);
          {
            const int gk = gk0;
            const int v9 = ((gk > p1) ? p1 : gk);
            const int v10 = ((v9 < 0) ? 0 : v9);
            const int v11 = (v8 + v10);
            const float v12 = X0[v11];
            part2 = ((gk < p0 && gm < p2) ? v12 : 0.0f);
          }
          {
            const int gk = gk0 + 1;
            const int v13 = ((gk > p1) ? p1 : gk);
            const int v14 = ((v13 < 0) ? 0 : v13);
            const int v15 = (v8 + v14);
            const float v16 = X0[v15];
            part3 = ((gk < p0 && gm < p2) ? v16 : 0.0f);
          }
          {
            const int gk = gk0 + 2;
            const int v17 = ((gk > p1) ? p1 : gk);
            const int v18 = ((v17 < 0) ? 0 : v17);
            const int v19 = (v8 + v18);
            const float v20 = X0[v19];
            part4 = ((gk < p0 && gm < p2) ? v20 : 0.0f);
          }
          {
            const int gk = gk0 + 3;
            const int v21 = ((gk > p1) ? p1 : gk);
            const int v22 = ((v21 < 0) ? 0 : v21);
            const int v23 = (v8 + v22);
            const float v24 = X0[v23];
            part5 = ((gk < p0 && gm < p2) ? v24 : 0.0f);
          }
        }
        shared0[line * 4 + place] = make_float4(part2, part3, part4, part5);
      }
    }
    for (int s = (int)threadIdx.x; s < 128; s += 64) {
      const int line = s / 8;
      const int place = s % 8;
      {
        const int gk0 = k0 + line;
        const int gn0 = n0 + place * 4;
        float part25 = 0.0f;
        float part26 = 0.0f;
        float part27 = 0.0f;
        float part28 = 0.0f;
        {
          const int gk = gk0;
          const int v32 = ((gk > p1) ? p1 : gk);
          const int v33 = ((v32 < 0) ? 0 : v32);
          const int v34 = (v33 / 3);
          const int v35 = (v34 % 3);
          const int v39 = (v33 % 3);
          const int v42 = (v33 / p5);
          const int v43 = (v42 * p6);
          const int v46 = (v35 * p4);
          {
            const int gn = gn0;
            const int v29 = ((gn > p3) ? p3 : gn);
            const int v30 = ((v29 < 0) ? 0 : v29);
            const int v31 = (v30 / p4);
            const int v36 = (v31 + v35);
            const int v37 = (v36 + (-1));
            const int v38 = (v30 % p4);
            const int v40 = (v38 + v39);
            const int v41 = (v40 + (-1));
            const int v44 = (v31 * p4);
            const int v45 = (v43 + v44);
            const int v47 = (v45 + v46);
            const int v48 = (v47 + v38);
            const int v49 = (v48 + v39);
            const int v50 = (v49 + p7);
            const float v51 = (((unsigned int)(v37) < (unsigned int)(p4) && (unsigned int)(v41) < (unsigned int)(p4)) ? X1[v50] : 0.0f);
            part25 = ((gk < p0 && gn < p6) ? v51 : 0.0f);
          }
          {
            const int gn = gn0 + 1;
            const int v52 = ((gn > p3) ? p3 : gn);
            const int v53 = ((v52 < 0) ? 0 : v52);
            const int v54 = (v53 / p4);
            const int v55 = (v54 + v35);
            const int v56 = (v55 + (-1));
            const int v57 = (v53 % p4);
            const int v58 = (v57 + v39);
            const int v59 = (v58 + (-1));
            const int v60 = (v54 * p4);
            const int v61 = (v43 + v60);
            const int v62 = (v61 + v46);
            const int v63 = (v62 + v57);
            const int v64 = (v63 + v39);
            const int v65 = (v64 + p7);
            const float v66 = (((unsigned int)(v56) < (unsigned int)(p4) && (unsigned int)(v59) < (unsigned int)(p4)) ? X1[v65] : 0.0f);
            part26 = ((gk < p0 && gn < p6) ? v66 : 0.0f);
          }
          {
            const int gn = gn0 + 2;
            const int v67 = ((gn > p3) ? p3 : gn);
            const int v68 = ((v67 < 0) ? 0 : v67);
            const int v69 = (v68 / p4);
            const int v70 = (v69 + v35);
            const int v71 = (v70 + (-1));
            const int v72 = (v68 % p4);
            const int v73 = (v72 + v39);
            const int v74 = (v73 + (-1));
            const int v75 = (v69 * p4);
            const int v76 = (v43 + v75);
            const int v77 = (v76 + v46);
            const int v78 = (v77 + v72);
            const int v79 = (v78 + v39);
            const int v80 = (v79 + p7);
            const float v81 = (((unsigned int)(v71) < (unsigned int)(p4) && (unsigned int)(v74) < (unsigned int)(p4)) ? X1[v80] : 0.0f);
            part27 = ((gk < p0 && gn < p6) ? v81 : 0.0f);
          }
          {
            const int gn = gn0 + 3;
            const int v82 = ((gn > p3) ? p3 : gn);
            const int v83 = ((v82 < 0) ? 0 : v82);
            const int v84 = (v83 / p4);
            const int v85 = (v84 + v35);
            const int v86 = (v85 + (-1));
            const int v87 = (v83 % p4);
            const int v88 = (v87 + v39);
            const int v89 = (v88 + (-1));
            const int v90 = (v84 * p4);
            const int v91 = (v43 + v90);
            const int v92 = (v91 + v46);
            const int v93 = (v92 + v87);
            const int v94 = (v93 + v39);
            const int v95 = (v94 + p7);
            const float v96 = (((unsigned int)(v86) < (unsigned int)(p4) && (unsigned int)(v89) < (unsigned int)(p4)) ? X1[v95] : 0.0f);
            part28 = ((gk < p0 && gn < p6) ? v96 : 0.0f);
          }
        }
        shared1[line * 8 + place] = make_float4(part25, part26, part27, part28);
      }
    }
    __syncthreads();
    for (int k = 0; k < 4; k += 1) {
      const float4 y97 = shared1[(k * 4 + 0) * 8 + c0 / 4 + 0];
      const float4 y98 = shared1[(k * 4 + 1) * 8 + c0 / 4 + 0];
      const float4 y99 = shared1[(k * 4 + 2) * 8 + c0 / 4 + 0];
      const float4 y100 = shared1[(k * 4 + 3) * 8 + c0 / 4 + 0];
      const float4 x101 = shared0[(r0 + 0) * 4 + k];
      total0.x += x101.x * y97.x; total0.y += x101.x * y97.y; total0.z += x101.x * y97.z; total0.w += x101.x * y97.w;
      total0.x += x101.y * y98.x; total0.y += x101.y * y98.y; total0.z += x101.y * y98.z; total0.w += x101.y * y98.w;
      total0.x += x101.z * y99.x; total0.y += x101.z * y99.y; total0.z += x101.z * y99.z; total0.w += x101.z * y99.w;
      total0.x += x101.w * y100.x; total0.y += x101.w * y100.y; total0.z += x101.w * y100.z; total0.w += x101.w * y100.w;
      const float4 x102 = shared0[(r0 + 1) * 4 + k];
      total1.x += x102.x * y97.x; total1.y += x102.x * y97.y; total1.z += x102.x * y97.z; total1.w += x102.x * y97.w;
      total1.x += x102.y * y98.x; total1.y += x102.y * y98.y; total1.z += x102.y * y98.z; total1.w += x102.y * y98.w;
      total1.x += x102.z * y99.x; total1.y += x102.z * y99.y; total1.z += x102.z * y99.z; total1.w += x102.z * y99.w;
      total1.x += x102.w * y100.x; total1.y += x102.w * y100.y; total1.z += x102.w * y100.z; total1.w += x102.w * y100.w;
    }
    __syncthreads();
  }
  for (int r = 0; r < 2; r += 1) {
    const float4 sum103 = ((r == 0) ? total0 : total1);
    const int gm = row + r;
    if (gm < p2) {
      const int v108 = (gm * p6);
      if (column + 0 < p6) {
        const int four = (column + 0) / 4;
        const float v104 = maximum(sum103.x, 0.0f);
        const float v105 = maximum(sum103.y, 0.0f);
        const float v106 = maximum(sum103.z, 0.0f);
        const float v107 = maximum(sum103.w, 0.0f);
        const int v109 = (four * 4);
        const int v110 = (v108 + v109);
        ((float4*)Y0)[(v110 >> 2u)] = make_float4(v104, v105, v106, v107);
      }
    }
  }
}
