__kernel __attribute__((reqd_work_group_size(64, 1, 1))) void main_kernel(__global const float* restrict X0, __global const float* restrict X1, __global float* restrict Y0, __global const int* restrict P) {
  __local float4 shared0[64];
  __local float4 shared1[128];
  const int p0 = P[0];
  const int p1 = P[1];
  const int p2 = P[2];
  const int p3 = P[3];
  const int p4 = P[4];
  const int p5 = P[5];
  const int p6 = P[6];
  const int p7 = P[7];
  const int z = (int)get_group_id(2);
  const int m0 = (int)get_group_id(1) * 16;
  const int n0 = (int)get_group_id(0) * 32;
  const int r0 = ((int)get_local_id(0) / 8) * 2;
  const int c0 = ((int)get_local_id(0) % 8) * 4;
  const int row = m0 + r0;
  const int column = n0 + c0;
  float4 total0 = (float4)(0.0f, 0.0f, 0.0f, 0.0f);
  float4 total1 = (float4)(0.0f, 0.0f, 0.0f, 0.0f);
  for (int k0 = 0; k0 < p0; k0 += 16) {
    for (int s = (int)get_local_id(0); s < 64; s += 64) {
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
        shared0[line * 4 + place] = (float4)(part2, part3, part4, part5);
      }
    }
    for (int s = (int)get_local_id(0); s < 128; s += 64) {
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
          const int v29 = ((gk > p1) ? p1 : gk);
          const int v30 = ((v29 < 0) ? 0 : v29);
          const int v31 = (v30 / p3);
          const int v32 = (v31 * p4);
          const int v36 = (v30 / 3);
          const int v37 = (v36 % 3);
          const int v45 = (v30 % 3);
          {
            const int gn = gn0;
            const int v33 = ((gn > p5) ? p5 : gn);
            const int v34 = ((v33 < 0) ? 0 : v33);
            const int v35 = (v34 / p6);
            const int v38 = (v35 + v37);
            const int v39 = (v38 + (-1));
            const int v40 = ((v39 > p7) ? p7 : v39);
            const int v41 = ((v40 < 0) ? 0 : v40);
            const int v42 = (v41 * p6);
            const int v43 = (v32 + v42);
            const int v44 = (v34 % p6);
            const int v46 = (v44 + v45);
            const int v47 = (v46 + (-1));
            const int v48 = ((v47 > p7) ? p7 : v47);
            const int v49 = ((v48 < 0) ? 0 : v48);
            const int v50 = (v43 + v49);
            const float v51 = X1[v50];
            const float v52 = ((v39 >= 0 && v39 < p6 && v47 >= 0 && v47 < p6) ? v51 : 0.0f);
            part25 = ((gk < p0 && gn < p4) ? v52 : 0.0f);
          }
          {
            const int gn = gn0 + 1;
            const int v53 = ((gn > p5) ? p5 : gn);
            const int v54 = ((v53 < 0) ? 0 : v53);
            const int v55 = (v54 / p6);
            const int v56 = (v55 + v37);
            const int v57 = (v56 + (-1));
            const int v58 = ((v57 > p7) ? p7 : v57);
            const int v59 = ((v58 < 0) ? 0 : v58);
            const int v60 = (v59 * p6);
            const int v61 = (v32 + v60);
            const int v62 = (v54 % p6);
            const int v63 = (v62 + v45);
            const int v64 = (v63 + (-1));
            const int v65 = ((v64 > p7) ? p7 : v64);
            const int v66 = ((v65 < 0) ? 0 : v65);
            const int v67 = (v61 + v66);
            const float v68 = X1[v67];
            const float v69 = ((v57 >= 0 && v57 < p6 && v64 >= 0 && v64 < p6) ? v68 : 0.0f);
            part26 = ((gk < p0 && gn < p4) ? v69 : 0.0f);
          }
          {
            const int gn = gn0 + 2;
            const int v70 = ((gn > p5) ? p5 : gn);
            const int v71 = ((v70 < 0) ? 0 : v70);
            const int v72 = (v71 / p6);
            const int v73 = (v72 + v37);
            const int v74 = (v73 + (-1));
            const int v75 = ((v74 > p7) ? p7 : v74);
            const int v76 = ((v75 < 0) ? 0 : v75);
            const int v77 = (v76 * p6);
            const int v78 = (v32 + v77);
            const int v79 = (v71 % p6);
            const int v80 = (v79 + v45);
            const int v81 = (v80 + (-1));
            const int v82 = ((v81 > p7) ? p7 : v81);
            const int v83 = ((v82 < 0) ? 0 : v82);
            const int v84 = (v78 + v83);
            const float v85 = X1[v84];
            const float v86 = ((v74 >= 0 && v74 < p6 && v81 >= 0 && v81 < p6) ? v85 : 0.0f);
            part27 = ((gk < p0 && gn < p4) ? v86 : 0.0f);
          }
          {
            const int gn = gn0 + 3;
            const int v87 = ((gn > p5) ? p5 : gn);
            const int v88 = ((v87 < 0) ? 0 : v87);
            const int v89 = (v88 / p6);
            const int v90 = (v89 + v37);
            const int v91 = (v90 + (-1));
            const int v92 = ((v91 > p7) ? p7 : v91);
            const int v93 = ((v92 < 0) ? 0 : v92);
            const int v94 = (v93 * p6);
            const int v95 = (v32 + v94);
            const int v96 = (v88 % p6);
            const int v97 = (v96 + v45);
            const int v98 = (v97 + (-1));
            const int v99 = ((v98 > p7) ? p7 : v98);
            const int v100 = ((v99 < 0) ? 0 : v99);
            const int v101 = (v95 + v100);
            const float v102 = X1[v101];
            const float v103 = ((v91 >= 0 && v91 < p6 && v98 >= 0 && v98 < p6) ? v102 : 0.0f);
            part28 = ((gk < p0 && gn < p4) ? v103 : 0.0f);
          }
        }
        shared1[line * 8 + place] = (float4)(part25, part26, part27, part28);
      }
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int k = 0; k < 4; k += 1) {
      const float4 y104 = shared1[(k * 4 + 0) * 8 + c0 / 4 + 0];
      const float4 y105 = shared1[(k * 4 + 1) * 8 + c0 / 4 + 0];
      const float4 y106 = shared1[(k * 4 + 2) * 8 + c0 / 4 + 0];
      const float4 y107 = shared1[(k * 4 + 3) * 8 + c0 / 4 + 0];
      const float4 x108 = shared0[(r0 + 0) * 4 + k];
      total0 += x108.x * y104;
      total0 += x108.y * y105;
      total0 += x108.z * y106;
      total0 += x108.w * y107;
      const float4 x109 = shared0[(r0 + 1) * 4 + k];
      total1 += x109.x * y104;
      total1 += x109.y * y105;
      total1 += x109.z * y106;
      total1 += x109.w * y107;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
  }
  for (int r = 0; r < 2; r += 1) {
    const float4 sum110 = ((r == 0) ? total0 : total1);
    const int gm = row + r;
    if (gm < p2) {
      const int v127 = (gm * p4);
      if (column + 0 < p4) {
        const int four = (column + 0) / 4;
        const float v111 = ((sum110.x > 0.0f) ? sum110.x : 0.0f);
        const uint v112 = (as_uint(sum110.x) & 0x7fffffffu);
        const bool v113 = (v112 > 0x7f800000u);
        const float v114 = (v113 ? sum110.x : v111);
        const float v115 = ((sum110.y > 0.0f) ? sum110.y : 0.0f);
        const uint v116 = (as_uint(sum110.y) & 0x7fffffffu);
        const bool v117 = (v116 > 0x7f800000u);
        const float v118 = (v117 ? sum110.y : v115);
        const float v119 = ((sum110.z > 0.0f) ? sum110.z : 0.0f);
        const uint v120 = (as_uint(sum110.z) & 0x7fffffffu);
        const bool v121 = (v120 > 0x7f800000u);
        const float v122 = (v121 ? sum110.z : v119);
        const float v123 = ((sum110.w > 0.0f) ? sum110.w : 0.0f);
        const uint v124 = (as_uint(sum110.w) & 0x7fffffffu);
        const bool v125 = (v124 > 0x7f800000u);
        const float v126 = (v125 ? sum110.w : v123);
        const int v128 = (four * 4);
        const int v129 = (v127 + v128);
        vstore4((float4)(v114, v118, v122, v126), (v129 >> 2u), Y0);
      }
    }
  }
}
