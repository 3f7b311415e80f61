__device__ __forceinline__ int dot4_s8s8(int d, unsigned int a, unsigned int b) {
  int r;
  asm("dp4a.s32.s32 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(b), "r"(d));
  return r;
}
__device__ __forceinline__ int dot4_s8u8(int d, unsigned int a, unsigned int b) {
  int r;
  asm("dp4a.s32.u32 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(b), "r"(d));
  return r;
}
__device__ __forceinline__ int dot4_u8s8(int d, unsigned int a, unsigned int b) {
  int r;
  asm("dp4a.u32.s32 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(b), "r"(d));
  return r;
}
__device__ __forceinline__ int dot4_u8u8(int d, unsigned int a, unsigned int b) {
  int r;
  asm("dp4a.u32.u32 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(b), "r"(d));
  return r;
}
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
        word28 = word28 | ((gk < p1 && gn < p5) ? (((unsigned int)(v54) & 255u) << 0u) : 0u);
      }
      {
        const int gk = gk0 + 1;
        const int v55 = ((gk > p2) ? p2 : gk);
        const int v56 = ((v55 < 0) ? 0 : v55);
        const int v57 = (v56 / p4);
        const int v58 = (v57 * p5);
        const int v59 = (v56 / 3);
        const int v60 = (v59 % 3);
        const int v61 = (v35 + v60);
        const int v62 = (v61 + (-1));
        const int v63 = ((v62 > p8) ? p8 : v62);
        const int v64 = ((v63 < 0) ? 0 : v63);
        const int v65 = (v64 * p7);
        const int v66 = (v58 + v65);
        const int v67 = (v56 % 3);
        const int v68 = (v44 + v67);
        const int v69 = (v68 + (-1));
        const int v70 = ((v69 > p8) ? p8 : v69);
        const int v71 = ((v70 < 0) ? 0 : v70);
        const int v72 = (v66 + v71);
        const unsigned int v73 = X1[v72];
        const unsigned int v74 = (((unsigned int)(v62) < (unsigned int)(p7) && (unsigned int)(v69) < (unsigned int)(p7)) ? v73 : v52);
        const int v75 = (int)(v74);
        word28 = word28 | ((gk < p1 && gn < p5) ? (((unsigned int)(v75) & 255u) << 8u) : 0u);
      }
      {
        const int gk = gk0 + 2;
        const int v76 = ((gk > p2) ? p2 : gk);
        const int v77 = ((v76 < 0) ? 0 : v76);
        const int v78 = (v77 / p4);
        const int v79 = (v78 * p5);
        const int v80 = (v77 / 3);
        const int v81 = (v80 % 3);
        const int v82 = (v35 + v81);
        const int v83 = (v82 + (-1));
        const int v84 = ((v83 > p8) ? p8 : v83);
        const int v85 = ((v84 < 0) ? 0 : v84);
        const int v86 = (v85 * p7);
        const int v87 = (v79 + v86);
        const int v88 = (v77 % 3);
        const int v89 = (v44 + v88);
        const int v90 = (v89 + (-1));
        const int v91 = ((v90 > p8) ? p8 : v90);
        const int v92 = ((v91 < 0) ? 0 : v91);
        const int v93 = (v87 + v92);
        const unsigned int v94 = X1[v93];
        const unsigned int v95 = (((unsigned int)(v83) < (unsigned int)(p7) && (unsigned int)(v90) < (unsigned int)(p7)) ? v94 : v52);
        const int v96 = (int)(v95);
        word28 = word28 | ((gk < p1 && gn < p5) ? (((unsigned int)(v96) & 255u) << 16u) : 0u);
      }
      {
        const int gk = gk0 + 3;
        const int v97 = ((gk > p2) ? p2 : gk);
        const int v98 = ((v97 < 0) ? 0 : v97);
        const int v99 = (v98 / p4);
        const int v100 = (v99 * p5);
        const int v101 = (v98 / 3);
        const int v102 = (v101 % 3);
        const int v103 = (v35 + v102);
        const int v104 = (v103 + (-1));
        const int v105 = ((v104 > p8) ? p8 : v104);
        const int v106 = ((v105 < 0) ? 0 : v105);
        const int v107 = (v106 * p7);
        const int v108 = (v100 + v107);
        const int v109 = (v98 % 3);
        const int v110 = (v44 + v109);
        const int v111 = (v110 + (-1));
        const int v112 = ((v111 > p8) ? p8 : v111);
        const int v113 = ((v112 < 0) ? 0 : v112);
        const int v114 = (v108 + v113);
        const unsigned int v115 = X1[v114];
        const unsigned int v116 = (((unsigned int)(v104) < (unsigned int)(p7) && (unsigned int)(v111) < (unsigned int)(p7)) ? v115 : v52);
        const int v117 = (int)(v116);
        word28 = word28 | ((gk < p1 && gn < p5) ? (((unsigned int)(v117) & 255u) << 24u) : 0u);
      }
      shared1[place * 32 + line] = word28;
    }
    __syncthreads();
    for (int k = 0; k < 16; k += 1) {
      const unsigned int v118 = shared0[(r0 + 0) * 16 + k];
      const unsigned int v119 = shared0[(r0 + 1) * 16 + k];
      const unsigned int v120 = shared1[k * 32 + c0 + 0];
      const unsigned int v121 = shared1[k * 32 + c0 + 1];
      const unsigned int v122 = shared1[k * 32 + c0 + 2];
      const unsigned int v123 = shared1[k * 32 + c0 + 3];
      total0 = dot4_s8u8(total0, v118, v120);
      total1 = dot4_s8u8(total1, v118, v121);
      total2 = dot4_s8u8(total2, v118, v122);
      total3 = dot4_s8u8(total3, v118, v123);
      total4 = dot4_s8u8(total4, v119, v120);
      total5 = dot4_s8u8(total5, v119, v121);
      total6 = dot4_s8u8(total6, v119, v122);
      total7 = dot4_s8u8(total7, v119, v123);
    }
    __syncthreads();
  }
  const int v129 = (int)(v52);
  for (int r = 0; r < 2; r += 1) {
    const int sum124 = ((r == 0) ? total0 : total4);
    const int sum125 = ((r == 0) ? total1 : total5);
    const int sum126 = ((r == 0) ? total2 : total6);
    const int sum127 = ((r == 0) ? total3 : total7);
    const int gm = row + r;
    if (gm < p3) {
      const int v128 = X3[gm];
      const int v138 = (gm * p5);
      if (column + 0 < p5) {
        const int four = (column + 0) / 4;
        const int v130 = (v128 * v129);
        const int v131 = (sum124 - v130);
        const int v132 = (v128 * v129);
        const int v133 = (sum125 - v132);
        const int v134 = (v128 * v129);
        const int v135 = (sum126 - v134);
        const int v136 = (v128 * v129);
        const int v137 = (sum127 - v136);
        const int v139 = (four * 4);
        const int v140 = (v138 + v139);
        ((int4*)Y0)[(v140 >> 2u)] = make_int4(v131, v133, v135, v137);
      }
    }
  }
}
