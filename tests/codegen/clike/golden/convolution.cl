__kernel __attribute__((reqd_work_group_size(64, 1, 1))) void main_kernel(__global const float* restrict X0, __global const float* restrict X1, __global float* restrict Y0, __global const int* restrict P) {
  __local float shared0[256];
  __local float shared1[256];
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
  const int n0 = (int)get_group_id(0) * 16;
  const int r0 = ((int)get_local_id(0) / 8) * 2;
  const int c0 = ((int)get_local_id(0) % 8) * 2;
  const int row = m0 + r0;
  const int column = n0 + c0;
  float v0 = 0.0f;
  float v1 = 0.0f;
  float v2 = 0.0f;
  float v3 = 0.0f;
  for (int k0 = 0; k0 < p0; k0 += 16) {
    for (int s = (int)get_local_id(0); s < 256; s += 64) {
      const int gk = k0 + s % 16;
      const int gm = m0 + s / 16;
      const int v4 = ((gm > 4) ? 4 : gm);
      const int v5 = ((v4 < 0) ? 0 : v4);
      const int v6 = (v5 * p0);
      const int v7 = ((gk > p1) ? p1 : gk);
      const int v8 = ((v7 < 0) ? 0 : v7);
      const int v9 = (v6 + v8);
      const float v10 = X0[v9];
      shared0[(s % 16) * 16 + s / 16] = ((gk < p0 && gm < p2) ? v10 : 0.0f);
    }
    for (int s = (int)get_local_id(0); s < 256; s += 64) {
      const int gk = k0 + s / 16;
      const int gn = n0 + s % 16;
      const int v11 = ((gk > p1) ? p1 : gk);
      const int v12 = ((v11 < 0) ? 0 : v11);
      const int v13 = (v12 / p3);
      const int v14 = (v13 * p4);
      const int v15 = ((gn > p5) ? p5 : gn);
      const int v16 = ((v15 < 0) ? 0 : v15);
      const int v17 = (v16 / p6);
      const int v18 = (v12 / 3);
      const int v19 = (v18 % 3);
      const int v20 = (v17 + v19);
      const int v21 = (v20 + (-1));
      const int v22 = ((v21 > p7) ? p7 : v21);
      const int v23 = ((v22 < 0) ? 0 : v22);
      const int v24 = (v23 * p6);
      const int v25 = (v14 + v24);
      const int v26 = (v16 % p6);
      const int v27 = (v12 % 3);
      const int v28 = (v26 + v27);
      const int v29 = (v28 + (-1));
      const int v30 = ((v29 > p7) ? p7 : v29);
      const int v31 = ((v30 < 0) ? 0 : v30);
      const int v32 = (v25 + v31);
      const float v33 = X1[v32];
      const float v34 = ((v21 >= 0 && v21 < p6 && v29 >= 0 && v29 < p6) ? v33 : 0.0f);
      shared1[s] = ((gk < p0 && gn < p4) ? v34 : 0.0f);
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int k = 0; k < 16; k += 1) {
      const float v35 = shared0[k * 16 + r0 + 0];
      const float v36 = shared0[k * 16 + r0 + 1];
      const float v37 = shared1[k * 16 + c0 + 0];
      const float v38 = shared1[k * 16 + c0 + 1];
      v0 = v0 + v35 * v37;
      v1 = v1 + v35 * v38;
      v2 = v2 + v36 * v37;
      v3 = v3 + v36 * v38;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
  }
  {
    const int gm = row + 0;
    const int gn = column + 0;
    if (gm < p2 && gn < p4) {
      const float v39 = ((v0 > 0.0f) ? v0 : 0.0f);
      const uint v40 = (as_uint(v0) & 0x7fffffffu);
      const bool v41 = (v40 > 0x7f800000u);
      const float v42 = (v41 ? v0 : v39);
      const int v43 = (gm * p4);
      const int v44 = (v43 + gn);
      Y0[v44] = v42;
    }
  }
  {
    const int gm = row + 0;
    const int gn = column + 1;
    if (gm < p2 && gn < p4) {
      const float v45 = ((v1 > 0.0f) ? v1 : 0.0f);
      const uint v46 = (as_uint(v1) & 0x7fffffffu);
      const bool v47 = (v46 > 0x7f800000u);
      const float v48 = (v47 ? v1 : v45);
      const int v49 = (gm * p4);
      const int v50 = (v49 + gn);
      Y0[v50] = v48;
    }
  }
  {
    const int gm = row + 1;
    const int gn = column + 0;
    if (gm < p2 && gn < p4) {
      const float v51 = ((v2 > 0.0f) ? v2 : 0.0f);
      const uint v52 = (as_uint(v2) & 0x7fffffffu);
      const bool v53 = (v52 > 0x7f800000u);
      const float v54 = (v53 ? v2 : v51);
      const int v55 = (gm * p4);
      const int v56 = (v55 + gn);
      Y0[v56] = v54;
    }
  }
  {
    const int gm = row + 1;
    const int gn = column + 1;
    if (gm < p2 && gn < p4) {
      const float v57 = ((v3 > 0.0f) ? v3 : 0.0f);
      const uint v58 = (as_uint(v3) & 0x7fffffffu);
      const bool v59 = (v58 > 0x7f800000u);
      const float v60 = (v59 ? v3 : v57);
      const int v61 = (gm * p4);
      const int v62 = (v61 + gn);
      Y0[v62] = v60;
    }
  }
}
