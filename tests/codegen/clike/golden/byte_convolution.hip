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
extern "C" __global__ void __launch_bounds__(64) main_kernel(const signed char* __restrict__ X0, const unsigned char* __restrict__ X1, const unsigned char* __restrict__ X2, const int* __restrict__ X3, int* __restrict__ Y0, const int p0, const int p1, const int p2, const int p3, const int p4, const int p5, const int p6, const int p7, const int p8, const int p9) {
  __shared__ unsigned int shared0[256];
  __shared__ unsigned int shared1[512];
  const int z = (int)blockIdx.z;
  const int m0 = (int)blockIdx.y * 16;
  const int n0 = (int)blockIdx.x * 32;
  const int r0 = ((int)threadIdx.x / 8) * 2;
  const int c0 = ((int)threadIdx.x % 8) * 4;
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
  const unsigned int v52 = X2[0];
  for (int k0 = 0; k0 < p9; k0 += 16) {
    for (int s = (int)threadIdx.x; s < 256; s += 64) {
      const int line = s / 16;
      const int place = s % 16;
      const int gk0 = (k0 + place) * 4;
      const int gm0 = m0 + line;
      const int gm = gm0;
      unsigned int word8 = 0u;
      const int v9 = ((gm > p0) ? p0 : gm);
      const int v10 = ((v9 < 0) ? 0 : v9);
      const int v11 = (v10 * p1);
      {
        const int gk = gk0 + 0;
        const int v12 = ((gk > p2) ? p2 : gk);
        const int v13 = ((v12 < 0) ? 0 : v12);
        const int v14 = (v11 + v13);
        const int v15 = X0[v14];
        word8 = word8 | ((gk < p1 && gm < p3) ? (((unsigned int)(v15) & 255u) << 0u) : 0u);
      }
      {
        const int gk = gk0 + 1;
        const int v16 = ((gk > p2) ? p2 : gk);
        const int v17 = ((v16 < 0) ? 0 : v16);
        const int v18 = (v11 + v17);
        const int v19 = X0[v18];
        word8 = word8 | ((gk < p1 && gm < p3) ? (((unsigned int)(v19) & 255u) << 8u) : 0u);
      }
      {
        const int gk = gk0 + 2;
        const int v20 = ((gk > p2) ? p2 : gk);
        const int v21 = ((v20 < 0) ? 0 : v20);
        const int v22 = (v11 + v21);
        const int v23 = X0[v22];
        word8 = word8 | ((gk < p1 && gm < p3) ? (((unsigned int)(v23) & 255u) << 16u) : 0u);
      }
      {
        const int gk = gk0 + 3;
        const int v24 = ((gk > p2) ? p2 : gk);
        const int v25 = ((v24 < 0) ? 0 : v24);
        const int v26 = (v11 + v25);
        const int v27 = X0[v26];
        word8 = word8 | ((gk < p1 && gm < p3) ? (((unsigned int)(v27) & 255u) << 24u) : 0u);
      }
      shared0[(line) * 16 + place] = word8;
    }
    for (int s = (int)threadIdx.x; s < 512; s += 64) {
      const int line = s % 32;
      const int place = s / 32;
      const int gk0 = (k0 + place) * 4;
      const int gn0 = n0 + line;
      const int gn = gn0;
      unsigned int word28 = 0u;
      const int v33 = ((gn > p6) ? p6 : gn);
      const int v34 = ((v33 < 0) ? 0 : v33);
      const int v35 = (v34 / p7);
      const int v44 = (v34 % p7);
      {
        const int gk = gk0 + 0;
        const int v29 = ((gk > p2) ? p2 : gk);
        const int v30 = ((v29 < 0) ? 0 : v29);
        const int v31 = (v30 / p4);
        const int v32 = (v31 * p5);
        const int v36 = (v30 / 3);
        const int v37 = (v36 % 3);
        const int v38 = (v35 + v37);
        const int v39 = (v38 + (-1));
        const int v40 = ((v39 > p8) ? p8 : v39);
        const int v41 = ((v40 < 0) ? 0 : v40);
        const int v42 = (v41 * p7);
        const int v43 = (v32 + v42);
        const int v45 = (v30 % 3);
        const int v46 = (v44 + v45);
        const int v47 = (v46 + (-1));
        const int v48 = ((v47 > p8) ? p8 : v47);
        const int v49 = ((v48 < 0) ? 0 : v48);
        const int v50 = (v43 + v49);
        const unsigned int v51 = X1[v50];
        const unsigned int v53 = (((unsigned int)(v39) < (unsigned int)(p7) && (unsigned int)(v47) < (unsigned int)(p7)) ? v51 : v52);
        const int v54 = (int)(v53);
        const int v55 = (v54 - 128);
        const int v56 = ((v55 << 24u) >> 24u);
        word28 = word28 | ((gk < p1 && gn < p5) ? (((unsigned int)(v56) & 255u) << 0u) : 0u);
      }
      {
        const int gk = gk0 + 1;
        const int v57 = ((gk > p2) ? p2 : gk);
        const int v58 = ((v57 < 0) ? 0 : v57);
        const int v59 = (v58 / p4);
        const int v60 = (v59 * p5);
        const int v61 = (v58 / 3);
        const int v62 = (v61 % 3);
        const int v63 = (v35 + v62);
        const int v64 = (v63 + (-1));
        const int v65 = ((v64 > p8) ? p8 : v64);
        const int v66 = ((v65 < 0) ? 0 : v65);
        const int v67 = (v66 * p7);
        const int v68 = (v60 + v67);
        const int v69 = (v58 % 3);
        const int v70 = (v44 + v69);
        const int v71 = (v70 + (-1));
        const int v72 = ((v71 > p8) ? p8 : v71);
        const int v73 = ((v72 < 0) ? 0 : v72);
        const int v74 = (v68 + v73);
        const unsigned int v75 = X1[v74];
        const unsigned int v76 = (((unsigned int)(v64) < (unsigned int)(p7) && (unsigned int)(v71) < (unsigned int)(p7)) ? v75 : v52);
        const int v77 = (int)(v76);
        const int v78 = (v77 - 128);
        const int v79 = ((v78 << 24u) >> 24u);
        word28 = word28 | ((gk < p1 && gn < p5) ? (((unsigned int)(v79) & 255u) << 8u) : 0u);
      }
      {
        const int gk = gk0 + 2;
        const int v80 = ((gk > p2) ? p2 : gk);
        const int v81 = ((v80 < 0) ? 0 : v80);
        const int v82 = (v81 / p4);
        const int v83 = (v82 * p5);
        const int v84 = (v81 / 3);
        const int v85 = (v84 % 3);
        const int v86 = (v35 + v85);
        const int v87 = (v86 + (-1));
        const int v88 = ((v87 > p8) ? p8 : v87);
        const int v89 = ((v88 < 0) ? 0 : v88);
        const int v90 = (v89 * p7);
        const int v91 = (v83 + v90);
        const int v92 = (v81 % 3);
        const int v93 = (v44 + v92);
        const int v94 = (v93 + (-1));
        const int v95 = ((v94 > p8) ? p8 : v94);
        const int v96 = ((v95 < 0) ? 0 : v95);
        const int v97 = (v91 + v96);
        const unsigned int v98 = X1[v97];
        const unsigned int v99 = (((unsigned int)(v87) < (unsigned int)(p7) && (unsigned int)(v94) < (unsigned int)(p7)) ? v98 : v52);
        const int v100 = (int)(v99);
        const int v101 = (v100 - 128);
        const int v102 = ((v101 << 24u) >> 24u);
        word28 = word28 | ((gk < p1 && gn < p5) ? (((unsigned int)(v102) & 255u) << 16u) : 0u);
      }
      {
        const int gk = gk0 + 3;
        const int v103 = ((gk > p2) ? p2 : gk);
        const int v104 = ((v103 < 0) ? 0 : v103);
        const int v105 = (v104 / p4);
        const int v106 = (v105 * p5);
        const int v107 = (v104 / 3);
        const int v108 = (v107 % 3);
        const int v109 = (v35 + v108);
        const int v110 = (v109 + (-1));
        const int v111 = ((v110 > p8) ? p8 : v110);
        const int v112 = ((v111 < 0) ? 0 : v111);
        const int v113 = (v112 * p7);
        const int v114 = (v106 + v113);
        const int v115 = (v104 % 3);
        const int v116 = (v44 + v115);
        const int v117 = (v116 + (-1));
        const int v118 = ((v117 > p8) ? p8 : v117);
        const int v119 = ((v118 < 0) ? 0 : v118);
        const int v120 = (v114 + v119);
        const unsigned int v121 = X1[v120];
        const unsigned int v122 = (((unsigned int)(v110) < (unsigned int)(p7) && (unsigned int)(v117) < (unsigned int)(p7)) ? v121 : v52);
        const int v123 = (int)(v122);
        const int v124 = (v123 - 128);
        const int v125 = ((v124 << 24u) >> 24u);
        word28 = word28 | ((gk < p1 && gn < p5) ? (((unsigned int)(v125) & 255u) << 24u) : 0u);
      }
      shared1[place * 32 + line] = word28;
    }
    __syncthreads();
    for (int k = 0; k < 16; k += 1) {
      const unsigned int v126 = shared0[(r0 + 0) * 16 + k];
      const unsigned int v127 = shared0[(r0 + 1) * 16 + k];
      const unsigned int v128 = shared1[k * 32 + c0 + 0];
      const unsigned int v129 = shared1[k * 32 + c0 + 1];
      const unsigned int v130 = shared1[k * 32 + c0 + 2];
      const unsigned int v131 = shared1[k * 32 + c0 + 3];
      total0 = dot4_s8s8(total0, v126, v128);
      total1 = dot4_s8s8(total1, v126, v129);
      total2 = dot4_s8s8(total2, v126, v130);
      total3 = dot4_s8s8(total3, v126, v131);
      total4 = dot4_s8s8(total4, v127, v128);
      total5 = dot4_s8s8(total5, v127, v129);
      total6 = dot4_s8s8(total6, v127, v130);
      total7 = dot4_s8s8(total7, v127, v131);
    }
    __syncthreads();
  }
  const int v137 = (int)(v52);
  const int v138 = (v137 - 128);
  for (int r = 0; r < 2; r += 1) {
    const int sum132 = ((r == 0) ? total0 : total4);
    const int sum133 = ((r == 0) ? total1 : total5);
    const int sum134 = ((r == 0) ? total2 : total6);
    const int sum135 = ((r == 0) ? total3 : total7);
    const int gm = row + r;
    if (gm < p3) {
      const int v136 = X3[gm];
      const int v147 = (gm * p5);
      if (column + 0 < p5) {
        const int four = (column + 0) / 4;
        const int v139 = (v136 * v138);
        const int v140 = (sum132 - v139);
        const int v141 = (v136 * v138);
        const int v142 = (sum133 - v141);
        const int v143 = (v136 * v138);
        const int v144 = (sum134 - v143);
        const int v145 = (v136 * v138);
        const int v146 = (sum135 - v145);
        const int v148 = (four * 4);
        const int v149 = (v147 + v148);
        ((i4*)Y0)[(v149 >> 2u)] = (i4){v140, v142, v144, v146};
      }
    }
  }
}
