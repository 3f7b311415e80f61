__kernel __attribute__((reqd_work_group_size(128, 1, 1))) void main_kernel(__global const float* restrict X0, __global const float* restrict X1, __global const float* restrict X2, __global float* restrict Y0, __global const int* restrict P) {
  __local float4 shared0[256];
  __local float4 shared1[256];
  const int p0 = P[0];
  const int p1 = P[1];
  const int p2 = P[2];
  const int p3 = P[3];
  const int p4 = P[4];
  const int z = (int)get_group_id(2);
  const int m0 = (int)get_group_id(1) * 64;
  const int n0 = (int)get_group_id(0) * 64;
  const int r0 = ((int)get_local_id(0) / 16) * 8;
  const int c0 = ((int)get_local_id(0) % 16) * 4;
  const int row = m0 + r0;
  const int column = n0 + c0;
  float4 total0 = (float4)(0.0f, 0.0f, 0.0f, 0.0f);
  float4 total1 = (float4)(0.0f, 0.0f, 0.0f, 0.0f);
  float4 total2 = (float4)(0.0f, 0.0f, 0.0f, 0.0f);
  float4 total3 = (float4)(0.0f, 0.0f, 0.0f, 0.0f);
  float4 total4 = (float4)(0.0f, 0.0f, 0.0f, 0.0f);
  float4 total5 = (float4)(0.0f, 0.0f, 0.0f, 0.0f);
  float4 total6 = (float4)(0.0f, 0.0f, 0.0f, 0.0f);
  float4 total7 = (float4)(0.0f, 0.0f, 0.0f, 0.0f);
  for (int k0 = 0; k0 < p0; k0 += 16) {
    for (int s = (int)get_local_id(0); s < 256; s += 128) {
      const int line = s / 4;
      const int place = s % 4;
      {
        const int gk0 = k0 + place * 4;
        const int gm0 = m0 + line;
        const int gk = gk0;
        const int gm = gm0;
        const int v8 = (gm * p0);
        const int v9 = (v8 + gk);
        shared0[line * 4 + place] = (float4)(0.0f, 0.0f, 0.0f, 0.0f);
        if (gk < p0 && gm < p1) {
          shared0[line * 4 + place] = vload4(v9 >> 2, X0);
        }
      }
    }
    for (int s = (int)get_local_id(0); s < 256; s += 128) {
      const int line = s / 16;
      const int place = s % 16;
      {
        const int gk0 = k0 + line;
        const int gn0 = n0 + place * 4;
        float part10 = 0.0f;
        float part11 = 0.0f;
        float part12 = 0.0f;
        float part13 = 0.0f;
        {
          const int gk = gk0;
          const int v14 = ((gk > p2) ? p2 : gk);
          const int v15 = ((v14 < 0) ? 0 : v14);
          const int v16 = (v15 * p3);
          {
            const int gn = gn0;
            const int v17 = ((gn > p4) ? p4 : gn);
            const int v18 = ((v17 < 0) ? 0 : v17);
            const int v19 = (v16 + v18);
            const float v20 = X1[v19];
            part10 = ((gk < p0 && gn < p3) ? v20 : 0.0f);
          }
          {
            const int gn = gn0 + 1;
            const int v21 = ((gn > p4) ? p4 : gn);
            const int v22 = ((v21 < 0) ? 0 : v21);
            const int v23 = (v16 + v22);
            const float v24 = X1[v23];
            part11 = ((gk < p0 && gn < p3) ? v24 : 0.0f);
          }
          {
            const int gn = gn0 + 2;
            const int v25 = ((gn > p4) ? p4 : gn);
            const int v26 = ((v25 < 0) ? 0 : v25);
            const int v27 = (v16 + v26);
            const float v28 = X1[v27];
            part12 = ((gk < p0 && gn < p3) ? v28 : 0.0f);
          }
          {
            const int gn = gn0 + 3;
            const int v29 = ((gn > p4) ? p4 : gn);
            const int v30 = ((v29 < 0) ? 0 : v29);
            const int v31 = (v16 + v30);
            const float v32 = X1[v31];
            part13 = ((gk < p0 && gn < p3) ? v32 : 0.0f);
          }
        }
        shared1[line * 16 + place] = (float4)(part10, part11, part12, part13);
      }
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int k = 0; k < 4; k += 1) {
      const float4 y33 = shared1[(k * 4 + 0) * 16 + c0 / 4 + 0];
      const float4 y34 = shared1[(k * 4 + 1) * 16 + c0 / 4 + 0];
      const float4 y35 = shared1[(k * 4 + 2) * 16 + c0 / 4 + 0];
      const float4 y36 = shared1[(k * 4 + 3) * 16 + c0 / 4 + 0];
      const float4 x37 = shared0[(r0 + 0) * 4 + k];
      total0 += x37.x * y33;
      total0 += x37.y * y34;
      total0 += x37.z * y35;
      total0 += x37.w * y36;
      const float4 x38 = shared0[(r0 + 1) * 4 + k];
      total1 += x38.x * y33;
      total1 += x38.y * y34;
      total1 += x38.z * y35;
      total1 += x38.w * y36;
      const float4 x39 = shared0[(r0 + 2) * 4 + k];
      total2 += x39.x * y33;
      total2 += x39.y * y34;
      total2 += x39.z * y35;
      total2 += x39.w * y36;
      const float4 x40 = shared0[(r0 + 3) * 4 + k];
      total3 += x40.x * y33;
      total3 += x40.y * y34;
      total3 += x40.z * y35;
      total3 += x40.w * y36;
      const float4 x41 = shared0[(r0 + 4) * 4 + k];
      total4 += x41.x * y33;
      total4 += x41.y * y34;
      total4 += x41.z * y35;
      total4 += x41.w * y36;
      const float4 x42 = shared0[(r0 + 5) * 4 + k];
      total5 += x42.x * y33;
      total5 += x42.y * y34;
      total5 += x42.z * y35;
      total5 += x42.w * y36;
      const float4 x43 = shared0[(r0 + 6) * 4 + k];
      total6 += x43.x * y33;
      total6 += x43.y * y34;
      total6 += x43.z * y35;
      total6 += x43.w * y36;
      const float4 x44 = shared0[(r0 + 7) * 4 + k];
      total7 += x44.x * y33;
      total7 += x44.y * y34;
      total7 += x44.z * y35;
      total7 += x44.w * y36;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
  }
  for (int r = 0; r < 8; r += 1) {
    const float4 sum45 = ((r == 0) ? total0 : ((r == 1) ? total1 : ((r == 2) ? total2 : ((r == 3) ? total3 : ((r == 4) ? total4 : ((r == 5) ? total5 : ((r == 6) ? total6 : total7)))))));
    const int gm = row + r;
    if (gm < p1) {
      const int v48 = (gm * p3);
      {
        const int gn = column + 0;
        if (gn < p3) {
          const float v46 = X2[gn];
          const float v47 = (sum45.x + v46);
          const int v49 = (v48 + gn);
          Y0[v49] = v47;
        }
      }
      {
        const int gn = column + 1;
        if (gn < p3) {
          const float v50 = X2[gn];
          const float v51 = (sum45.y + v50);
          const int v52 = (v48 + gn);
          Y0[v52] = v51;
        }
      }
      {
        const int gn = column + 2;
        if (gn < p3) {
          const float v53 = X2[gn];
          const float v54 = (sum45.z + v53);
          const int v55 = (v48 + gn);
          Y0[v55] = v54;
        }
      }
      {
        const int gn = column + 3;
        if (gn < p3) {
          const float v56 = X2[gn];
          const float v57 = (sum45.w + v56);
          const int v58 = (v48 + gn);
          Y0[v58] = v57;
        }
      }
    }
  }
}
