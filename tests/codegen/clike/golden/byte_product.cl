__kernel __attribute__((reqd_work_group_size(32, 1, 1))) void main_kernel(__global const uchar* restrict X0, __global int* restrict Y0, __global const int* restrict P) {
  __local int shared0[32];
  const int p0 = P[0];
  const int row = ((int)get_group_id(1) * (int)get_num_groups(0) + (int)get_group_id(0));
  {
    int v0 = 0;
    const int v2 = (row * p0);
    for (int k1 = (int)get_local_id(0); k1 < p0; k1 += 32) {
      const int v3 = (v2 + k1);
      const uint v4 = X0[v3];
      const int v5 = (int)(v4);
      const int v6 = (v0 + v5);
      v0 = v6;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    shared0[(int)get_local_id(0)] = v0;
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int h = 0; h < 5; h += 1) {
      const int apart = 16 >> h;
      if ((int)get_local_id(0) < apart) {
        const int v7 = shared0[(int)get_local_id(0)];
        const int v8 = shared0[(int)get_local_id(0) + apart];
        const int v9 = (v7 + v8);
        shared0[(int)get_local_id(0)] = v9;
      }
      barrier(CLK_LOCAL_MEM_FENCE);
    }
    const int v10 = shared0[0];
    for (int j = (int)get_local_id(0); j < 1; j += 32) {
      Y0[row] = v10;
    }
  }
}

int dot4_u8s8(int d, uint a, uint b) {
#ifdef __opencl_c_integer_dot_product_input_4x8bit_packed
  return d + (int)dot_4x8packed_us_int(a, b);
#else
  const int4 p = convert_int4(as_uchar4(a)) * convert_int4(as_char4(b));
  return d + (p.x + p.y + p.z + p.w);
#endif
}
__kernel __attribute__((reqd_work_group_size(128, 1, 1))) void main_kernel(__global const uchar* restrict X0, __global const char* restrict X1, __global const uchar* restrict X2, __global const int* restrict X3, __global const int* restrict X4, __global const char* restrict X5, __global int* restrict Y0, __global const int* restrict P) {
  __local uint shared0[1024];
  __local uint shared1[1024];
  const int p0 = P[0];
  const int p1 = P[1];
  const int p2 = P[2];
  const int p3 = P[3];
  const int z = (int)get_group_id(2);
  const int m0 = (int)get_group_id(1) * 64;
  const int n0 = (int)get_group_id(0) * 64;
  const int r0 = ((int)get_local_id(0) / 16) * 8;
  const int c0 = ((int)get_local_id(0) % 16) * 4;
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
    for (int s = (int)get_local_id(0); s < 1024; s += 128) {
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
        shared0[(line) * 16 + place] = ((__global const uint*)X0)[v33 >> 2];
      }
    }
    for (int s = (int)get_local_id(0); s < 256; s += 128) {
      const int line = (s % 16) * 4;
      const int place = s / 16;
      const int gk0 = (k0 + place) * 4;
      const int gn0 = n0 + line;
      const int gn = gn0;
      uint word34 = 0u;
      {
        const int gk = gk0 + 0;
        if (gk < p0 && gn < p2) {
          const int v38 = (gk * p2);
          const int v39 = (v38 + gn);
          word34 = ((__global const uint*)X1)[v39 >> 2];
        }
      }
      uint word35 = 0u;
      {
        const int gk = gk0 + 1;
        if (gk < p0 && gn < p2) {
          const int v40 = (gk * p2);
          const int v41 = (v40 + gn);
          word35 = ((__global const uint*)X1)[v41 >> 2];
        }
      }
      uint word36 = 0u;
      {
        const int gk = gk0 + 2;
        if (gk < p0 && gn < p2) {
          const int v42 = (gk * p2);
          const int v43 = (v42 + gn);
          word36 = ((__global const uint*)X1)[v43 >> 2];
        }
      }
      uint word37 = 0u;
      {
        const int gk = gk0 + 3;
        if (gk < p0 && gn < p2) {
          const int v44 = (gk * p2);
          const int v45 = (v44 + gn);
          word37 = ((__global const uint*)X1)[v45 >> 2];
        }
      }
      shared1[place * 64 + line + 0] = (((word34 >> 0u) & 255u) << 0u) | (((word35 >> 0u) & 255u) << 8u) | (((word36 >> 0u) & 255u) << 16u) | (((word37 >> 0u) & 255u) << 24u);
      shared1[place * 64 + line + 1] = (((word34 >> 8u) & 255u) << 0u) | (((word35 >> 8u) & 255u) << 8u) | (((word36 >> 8u) & 255u) << 16u) | (((word37 >> 8u) & 255u) << 24u);
      shared1[place * 64 + line + 2] = (((word34 >> 16u) & 255u) << 0u) | (((word35 >> 16u) & 255u) << 8u) | (((word36 >> 16u) & 255u) << 16u) | (((word37 >> 16u) & 255u) << 24u);
      shared1[place * 64 + line + 3] = (((word34 >> 24u) & 255u) << 0u) | (((word35 >> 24u) & 255u) << 8u) | (((word36 >> 24u) & 255u) << 16u) | (((word37 >> 24u) & 255u) << 24u);
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int k = 0; k < 16; k += 1) {
      const uint v46 = shared0[(r0 + 0) * 16 + k];
      const uint v47 = shared0[(r0 + 1) * 16 + k];
      const uint v48 = shared0[(r0 + 2) * 16 + k];
      const uint v49 = shared0[(r0 + 3) * 16 + k];
      const uint v50 = shared0[(r0 + 4) * 16 + k];
      const uint v51 = shared0[(r0 + 5) * 16 + k];
      const uint v52 = shared0[(r0 + 6) * 16 + k];
      const uint v53 = shared0[(r0 + 7) * 16 + k];
      const uint v54 = shared1[k * 64 + c0 + 0];
      const uint v55 = shared1[k * 64 + c0 + 1];
      const uint v56 = shared1[k * 64 + c0 + 2];
      const uint v57 = shared1[k * 64 + c0 + 3];
      total0 = dot4_u8s8(total0, v46, v54);
      total1 = dot4_u8s8(total1, v46, v55);
      total2 = dot4_u8s8(total2, v46, v56);
      total3 = dot4_u8s8(total3, v46, v57);
      total4 = dot4_u8s8(total4, v47, v54);
      total5 = dot4_u8s8(total5, v47, v55);
      total6 = dot4_u8s8(total6, v47, v56);
      total7 = dot4_u8s8(total7, v47, v57);
      total8 = dot4_u8s8(total8, v48, v54);
      total9 = dot4_u8s8(total9, v48, v55);
      total10 = dot4_u8s8(total10, v48, v56);
      total11 = dot4_u8s8(total11, v48, v57);
      total12 = dot4_u8s8(total12, v49, v54);
      total13 = dot4_u8s8(total13, v49, v55);
      total14 = dot4_u8s8(total14, v49, v56);
      total15 = dot4_u8s8(total15, v49, v57);
      total16 = dot4_u8s8(total16, v50, v54);
      total17 = dot4_u8s8(total17, v50, v55);
      total18 = dot4_u8s8(total18, v50, v56);
      total19 = dot4_u8s8(total19, v50, v57);
      total20 = dot4_u8s8(total20, v51, v54);
      total21 = dot4_u8s8(total21, v51, v55);
      total22 = dot4_u8s8(total22, v51, v56);
      total23 = dot4_u8s8(total23, v51, v57);
      total24 = dot4_u8s8(total24, v52, v54);
      total25 = dot4_u8s8(total25, v52, v55);
      total26 = dot4_u8s8(total26, v52, v56);
      total27 = dot4_u8s8(total27, v52, v57);
      total28 = dot4_u8s8(total28, v53, v54);
      total29 = dot4_u8s8(total29, v53, v55);
      total30 = dot4_u8s8(total30, v53, v56);
      total31 = dot4_u8s8(total31, v53, v57);
    }
    barrier(CLK_LOCAL_MEM_FENCE);
  }
  const uint v62 = X2[0];
  const int v63 = (int)(v62);
  const int v70 = (v63 * 100);
  for (int r = 0; r < 8; r += 1) {
    const int sum58 = ((r == 0) ? total0 : ((r == 1) ? total4 : ((r == 2) ? total8 : ((r == 3) ? total12 : ((r == 4) ? total16 : ((r == 5) ? total20 : ((r == 6) ? total24 : total28)))))));
    const int sum59 = ((r == 0) ? total1 : ((r == 1) ? total5 : ((r == 2) ? total9 : ((r == 3) ? total13 : ((r == 4) ? total17 : ((r == 5) ? total21 : ((r == 6) ? total25 : total29)))))));
    const int sum60 = ((r == 0) ? total2 : ((r == 1) ? total6 : ((r == 2) ? total10 : ((r == 3) ? total14 : ((r == 4) ? total18 : ((r == 5) ? total22 : ((r == 6) ? total26 : total30)))))));
    const int sum61 = ((r == 0) ? total3 : ((r == 1) ? total7 : ((r == 2) ? total11 : ((r == 3) ? total15 : ((r == 4) ? total19 : ((r == 5) ? total23 : ((r == 6) ? total27 : total31)))))));
    const int gm = row + r;
    if (gm < p1) {
      const int v69 = X4[gm];
      const int v71 = (v69 - v70);
      const int v94 = (gm * p2);
      if (column + 0 < p2) {
        const int four = (column + 0) / 4;
        const int v65 = (four * 4);
        const int4 w64 = vload4(v65 >> 2, X3);
        const int v66 = w64.x;
        const int v67 = (v63 * v66);
        const int v68 = (sum58 - v67);
        const char4 w72 = vload4(v65 >> 2, X5);
        const int v73 = w72.x;
        const int v74 = (v71 * v73);
        const int v75 = (v68 - v74);
        const int v76 = w64.y;
        const int v77 = (v63 * v76);
        const int v78 = (sum59 - v77);
        const int v79 = w72.y;
        const int v80 = (v71 * v79);
        const int v81 = (v78 - v80);
        const int v82 = w64.z;
        const int v83 = (v63 * v82);
        const int v84 = (sum60 - v83);
        const int v85 = w72.z;
        const int v86 = (v71 * v85);
        const int v87 = (v84 - v86);
        const int v88 = w64.w;
        const int v89 = (v63 * v88);
        const int v90 = (sum61 - v89);
        const int v91 = w72.w;
        const int v92 = (v71 * v91);
        const int v93 = (v90 - v92);
        const int v95 = (v94 + v65);
        vstore4((int4)(v75, v81, v87, v93), (v95 >> 2u), Y0);
      }
    }
  }
}
