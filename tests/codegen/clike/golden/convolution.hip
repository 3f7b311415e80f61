typedef float f4 __attribute__((ext_vector_type(4)));
extern "C" __global__ void __launch_bounds__(64) main_kernel(const float* __restrict__ X0, const float* __restrict__ X1, float* __restrict__ Y0, const int p0, const int p1, const int p2, const int p3, const int p4, const int p5, const int p6) {
  __shared__ f4 shared0[64];
  __shared__ f4 shared1[128];
  const int z = (int)blockIdx.z;
  const int m0 = (int)blockIdx.y * 16;
  const int n0 = (int)blockIdx.x * 32;
  const int r0 = ((int)threadIdx.x / 8) * 2;
  const int c0 = ((int)threadIdx.x % 8) * 4;
  const int row = m0 + r0;
  const int column = n0 + c0;
  f4 total0 = (f4){0.0f, 0.0f, 0.0f, 0.0f};
  f4 total1 = (f4){0.0f, 0.0f, 0.0f, 0.0f};
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
        shared0[line * 4 + place] = (f4){part2, part3, part4, part5};
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
            const int v44 = (v37 * p4);
            const int v45 = (v43 + v44);
            const int v46 = (v45 + v41);
            const float v47 = (((unsigned int)(v37) < (unsigned int)(p4) && (unsigned int)(v41) < (unsigned int)(p4)) ? X1[v46] : 0.0f);
            part25 = ((gk < p0 && gn < p6) ? v47 : 0.0f);
          }
          {
            const int gn = gn0 + 1;
            const int v48 = ((gn > p3) ? p3 : gn);
            const int v49 = ((v48 < 0) ? 0 : v48);
            const int v50 = (v49 / p4);
            const int v51 = (v50 + v35);
            const int v52 = (v51 + (-1));
            const int v53 = (v49 % p4);
            const int v54 = (v53 + v39);
            const int v55 = (v54 + (-1));
            const int v56 = (v52 * p4);
            const int v57 = (v43 + v56);
            const int v58 = (v57 + v55);
            const float v59 = (((unsigned int)(v52) < (unsigned int)(p4) && (unsigned int)(v55) < (unsigned int)(p4)) ? X1[v58] : 0.0f);
            part26 = ((gk < p0 && gn < p6) ? v59 : 0.0f);
          }
          {
            const int gn = gn0 + 2;
            const int v60 = ((gn > p3) ? p3 : gn);
            const int v61 = ((v60 < 0) ? 0 : v60);
            const int v62 = (v61 / p4);
            const int v63 = (v62 + v35);
            const int v64 = (v63 + (-1));
            const int v65 = (v61 % p4);
            const int v66 = (v65 + v39);
            const int v67 = (v66 + (-1));
            const int v68 = (v64 * p4);
            const int v69 = (v43 + v68);
            const int v70 = (v69 + v67);
            const float v71 = (((unsigned int)(v64) < (unsigned int)(p4) && (unsigned int)(v67) < (unsigned int)(p4)) ? X1[v70] : 0.0f);
            part27 = ((gk < p0 && gn < p6) ? v71 : 0.0f);
          }
          {
            const int gn = gn0 + 3;
            const int v72 = ((gn > p3) ? p3 : gn);
            const int v73 = ((v72 < 0) ? 0 : v72);
            const int v74 = (v73 / p4);
            const int v75 = (v74 + v35);
            const int v76 = (v75 + (-1));
            const int v77 = (v73 % p4);
            const int v78 = (v77 + v39);
            const int v79 = (v78 + (-1));
            const int v80 = (v76 * p4);
            const int v81 = (v43 + v80);
            const int v82 = (v81 + v79);
            const float v83 = (((unsigned int)(v76) < (unsigned int)(p4) && (unsigned int)(v79) < (unsigned int)(p4)) ? X1[v82] : 0.0f);
            part28 = ((gk < p0 && gn < p6) ? v83 : 0.0f);
          }
        }
        shared1[line * 8 + place] = (f4){part25, part26, part27, part28};
      }
    }
    __syncthreads();
    for (int k = 0; k < 4; k += 1) {
      const f4 y84 = shared1[(k * 4 + 0) * 8 + c0 / 4 + 0];
      const f4 y85 = shared1[(k * 4 + 1) * 8 + c0 / 4 + 0];
      const f4 y86 = shared1[(k * 4 + 2) * 8 + c0 / 4 + 0];
      const f4 y87 = shared1[(k * 4 + 3) * 8 + c0 / 4 + 0];
      const f4 x88 = shared0[(r0 + 0) * 4 + k];
      total0 += x88.x * y84;
      total0 += x88.y * y85;
      total0 += x88.z * y86;
      total0 += x88.w * y87;
      const f4 x89 = shared0[(r0 + 1) * 4 + k];
      total1 += x89.x * y84;
      total1 += x89.y * y85;
      total1 += x89.z * y86;
      total1 += x89.w * y87;
    }
    __syncthreads();
  }
  for (int r = 0; r < 2; r += 1) {
    const f4 sum90 = ((r == 0) ? total0 : total1);
    const int gm = row + r;
    if (gm < p2) {
      const int v107 = (gm * p6);
      if (column + 0 < p6) {
        const int four = (column + 0) / 4;
        const float v91 = ((sum90.x > 0.0f) ? sum90.x : 0.0f);
        const unsigned int v92 = (__float_as_uint(sum90.x) & 0x7fffffffu);
        const bool v93 = (v92 > 0x7f800000u);
        const float v94 = (v93 ? sum90.x : v91);
        const float v95 = ((sum90.y > 0.0f) ? sum90.y : 0.0f);
        const unsigned int v96 = (__float_as_uint(sum90.y) & 0x7fffffffu);
        const bool v97 = (v96 > 0x7f800000u);
        const float v98 = (v97 ? sum90.y : v95);
        const float v99 = ((sum90.z > 0.0f) ? sum90.z : 0.0f);
        const unsigned int v100 = (__float_as_uint(sum90.z) & 0x7fffffffu);
        const bool v101 = (v100 > 0x7f800000u);
        const float v102 = (v101 ? sum90.z : v99);
        const float v103 = ((sum90.w > 0.0f) ? sum90.w : 0.0f);
        const unsigned int v104 = (__float_as_uint(sum90.w) & 0x7fffffffu);
        const bool v105 = (v104 > 0x7f800000u);
        const float v106 = (v105 ? sum90.w : v103);
        const int v108 = (four * 4);
        const int v109 = (v107 + v108);
        ((f4*)Y0)[(v109 >> 2u)] = (f4){v94, v98, v102, v106};
      }
    }
  }
}
