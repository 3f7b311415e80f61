int dot4_s8u8(int d, uint a, uint b) {
#ifdef __opencl_c_integer_dot_product_input_4x8bit_packed
  return d + (int)dot_4x8packed_su_int(a, b);
#else
  const int4 p = convert_int4(as_char4(a)) * convert_int4(as_uchar4(b));
  return d + (p.x + p.y + p.z + p.w);
#endif
}
__kernel __attribute__((reqd_work_group_size(64, 1, 1))) void main_kernel(__global const char* restrict X0, __global const uchar* restrict X1, __global const uchar* restrict X2, __global const int* restrict X3, __global int* restrict Y0, __global const int* restrict P) {
  __local uint shared0[256];
  __local uint shared1[512];
  const int p0 = P[0];
  const int p1 = P[1];
  const int p2 = P[2];
  const int p3 = P[3];
  const int p4 = P[4];
  const int p5 = P[5];
  const int p6 = P[6];
  const int p7 = P[7];
  const int p8 = P[8];
  const int p9 = P[9];
  const int z = (int)get_group_id(2);
  const int m0 = (int)get_group_id(1) * 16;
  const int n0 = (int)get_group_id(0) * 32;
  const int r0 = ((int)get_local_id(0) / 8) * 2;
  const int c0 = ((int)get_local_id(0) % 8) * 4;
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
  const uint v52 = X2[0];
  for (int k0 = 0; k0 < p9; k0 += 16) {
    for (int s = (int)get_local_id(0); s < 256; s += 64) {
      const int line = s / 16;
      const int place = s % 16;
      const int gk0 = (k0 + place) * 4;
      const int gm0 = m0 + line;
      const int gm = gm0;
      uint word8 = 0u;
      const int v9 = ((gm > p0) ? p0 : gm);
      const int v10 = ((v9 < 0) ? 0 : v9);
      const int v11 = (v10 * p1);
      {
        const int gk = gk0 + 0;
        const int v12 = ((gk > p2) ? p2 : gk);
        const int v13 = ((v12 < 0) ? 0 : v12);
        const int v14 = (v11 + v13);
        const int v15 = X0[v14];
        word8 = word8 | ((gk < p1 && gm < p3) ? (((uint)(v15) & 255u) << 0u) : 0u);
      }
      {
        const int gk = gk0 + 1;
        const int v16 = ((gk > p2) ? p2 : gk);
        const int v17 = ((v16 < 0) ? 0 : v16);
        const int v18 = (v11 + v17);
        const int v19 = X0[v18];
        word8 = word8 | ((gk < p1 && gm < p3) ? (((uint)(v19) & 255u) << 8u) : 0u);
      }
      {
        const int gk = gk0 + 2;
        const int v20 = ((gk > p2) ? p2 : gk);
        const int v21 = ((v20 < 0) ? 0 : v20);
        const int v22 = (v11 + v21);
        const int v23 = X0[v22];
        word8 = word8 | ((gk < p1 && gm < p3) ? (((uint)(v23) & 255u) << 16u) : 0u);
      }
      {
        const int gk = gk0 + 3;
        const int v24 = ((gk > p2) ? p2 : gk);
        const int v25 = ((v24 < 0) ? 0 : v24);
        const int v26 = (v11 + v25);
        const int v27 = X0[v26];
        word8 = word8 | ((gk < p1 && gm < p3) ? (((uint)(v27) & 255u) << 24u) : 0u);
      }
      shared0[(line) * 16 + place] = word8;
    }
    for (int s = (int)get_local_id(0); s < 512; s += 64) {
      const int line = s % 32;
      const int place = s / 32;
      const int gk0 = (k0 + place) * 4;
      const int gn0 = n0 + line;
      const int gn = gn0;
      uint word28 = 0u;
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
        const uint v51 = X1[v50];
        const uint v53 = ((v39 >= 0 && v39 < p7 && v47 >= 0 && v47 < p7) ? v51 : v52);
        const int v54 = (int)(v53);
        word28 = word28 | ((gk < p1 && gn < p5) ? (((uint)(v54) & 255u) << 0u) : 0u);
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
        const uint v73 = X1[v72];
        const uint v74 = ((v62 >= 0 && v62 < p7 && v69 >= 0 && v69 < p7) ? v73 : v52);
        const int v75 = (int)(v74);
        word28 = word28 | ((gk < p1 && gn < p5) ? (((uint)(v75) & 255u) << 8u) : 0u);
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
        const uint v94 = X1[v93];
        const uint v95 = ((v83 >= 0 && v83 < p7 && v90 >= 0 && v90 < p7) ? v94 : v52);
        const int v96 = (int)(v95);
        word28 = word28 | ((gk < p1 && gn < p5) ? (((uint)(v96) & 255u) << 16u) : 0u);
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
        const uint v115 = X1[v114];
        const uint v116 = ((v104 >= 0 && v104 < p7 && v111 >= 0 && v111 < p7) ? v115 : v52);
        const int v117 = (int)(v116);
        word28 = word28 | ((gk < p1 && gn < p5) ? (((uint)(v117) & 255u) << 24u) : 0u);
      }
      shared1[place * 32 + line] = word28;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int k = 0; k < 16; k += 1) {
      const uint v118 = shared0[(r0 + 0) * 16 + k];
      const uint v119 = shared0[(r0 + 1) * 16 + k];
      const uint v120 = shared1[k * 32 + c0 + 0];
      const uint v121 = shared1[k * 32 + c0 + 1];
      const uint v122 = shared1[k * 32 + c0 + 2];
      const uint v123 = shared1[k * 32 + c0 + 3];
      total0 = dot4_s8u8(total0, v118, v120);
      total1 = dot4_s8u8(total1, v118, v121);
      total2 = dot4_s8u8(total2, v118, v122);
      total3 = dot4_s8u8(total3, v118, v123);
      total4 = dot4_s8u8(total4, v119, v120);
      total5 = dot4_s8u8(total5, v119, v121);
      total6 = dot4_s8u8(total6, v119, v122);
      total7 = dot4_s8u8(total7, v119, v123);
    }
    barrier(CLK_LOCAL_MEM_FENCE);
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
        vstore4((int4)(v131, v133, v135, v137), (v140 >> 2u), Y0);
      }
    }
  }
}
