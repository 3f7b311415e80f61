extern "C" __global__ void __launch_bounds__(128) main_kernel(const float* __restrict__ X0, const float* __restrict__ X1, const float* __restrict__ X2, float* __restrict__ Y0, const int p0, const int p1, const int p2, const int p3, const int p4) {
  __shared__ float4 shared0[256];
  __shared__ float4 shared1[256];
  const int z = (int)blockIdx.z;
  const int m0 = (int)blockIdx.y * 64;
  const int n0 = (int)blockIdx.x * 64;
  const int r0 = ((int)threadIdx.x / 16) * 8;
  const int c0 = ((int)threadIdx.x % 16) * 4;
  const int row = m0 + r0;
  const int column = n0 + c0;
  float4 total0 = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
  float4 total1 = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
  float4 total2 = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
  float4 total3 = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
  float4 total4 = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
  float4 total5 = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
  float4 total6 = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
  float4 total7 = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
  for (int k0 = 0; k0 < p0; k0 += 16) {
    for (int s = (int)threadIdx.x; s < 256; s += 128) {
      const int line = s / 4;
      const int place = s % 4;
      {
        const int gk0 = k0 + place * 4;
        const int gm0 = m0 + line;
        const int gk = gk0;
        const int gm = gm0;
        const int v8 = (gm * p0);
        const int v9 = (v8 + gk);
        shared0[line * 4 + place] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        if (gk < p0 && gm < p1) {
          shared0[line * 4 + place] = ((const float4*)X0)[v9 >> 2];
        }
      }
    }
    for (int s = (int)threadIdx.x; s < 256; s += 128) {
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
        shared1[line * 16 + place] = make_float4(part10, part11, part12, part13);
      }
    }
    __syncthreads();
    for (int k = 0; k < 4; k += 1) {
      const float4 y33 = shared1[(k * 4 + 0) * 16 + c0 / 4 + 0];
      const float4 y34 = shared1[(k * 4 + 1) * 16 + c0 / 4 + 0];
      const float4 y35 = shared1[(k * 4 + 2) * 16 + c0 / 4 + 0];
      const float4 y36 = shared1[(k * 4 + 3) * 16 + c0 / 4 + 0];
      const float4 x37 = shared0[(r0 + 0) * 4 + k];
      total0.x += x37.x * y33.x; total0.y += x37.x * y33.y; total0.z += x37.x * y33.z; total0.w += x37.x * y33.w;
      total0.x += x37.y * y34.x; total0.y += x37.y * y34.y; total0.z += x37.y * y34.z; total0.w += x37.y * y34.w;
      total0.x += x37.z * y35.x; total0.y += x37.z * y35.y; total0.z += x37.z * y35.z; total0.w += x37.z * y35.w;
      total0.x += x37.w * y36.x; total0.y += x37.w * y36.y; total0.z += x37.w * y36.z; total0.w += x37.w * y36.w;
      const float4 x38 = shared0[(r0 + 1) * 4 + k];
      total1.x += x38.x * y33.x; total1.y += x38.x * y33.y; total1.z += x38.x * y33.z; total1.w += x38.x * y33.w;
      total1.x += x38.y * y34.x; total1.y += x38.y * y34.y; total1.z += x38.y * y34.z; total1.w += x38.y * y34.w;
      total1.x += x38.z * y35.x; total1.y += x38.z * y35.y; total1.z += x38.z * y35.z; total1.w += x38.z * y35.w;
      total1.x += x38.w * y36.x; total1.y += x38.w * y36.y; total1.z += x38.w * y36.z; total1.w += x38.w * y36.w;
      const float4 x39 = shared0[(r0 + 2) * 4 + k];
      total2.x += x39.x * y33.x; total2.y += x39.x * y33.y; total2.z += x39.x * y33.z; total2.w += x39.x * y33.w;
      total2.x += x39.y * y34.x; total2.y += x39.y * y34.y; total2.z += x39.y * y34.z; total2.w += x39.y * y34.w;
      total2.x += x39.z * y35.x; total2.y += x39.z * y35.y; total2.z += x39.z * y35.z; total2.w += x39.z * y35.w;
      total2.x += x39.w * y36.x; total2.y += x39.w * y36.y; total2.z += x39.w * y36.z; total2.w += x39.w * y36.w;
      const float4 x40 = shared0[(r0 + 3) * 4 + k];
      total3.x += x40.x * y33.x; total3.y += x40.x * y33.y; total3.z += x40.x * y33.z; total3.w += x40.x * y33.w;
      total3.x += x40.y * y34.x; total3.y += x40.y * y34.y; total3.z += x40.y * y34.z; total3.w += x40.y * y34.w;
      total3.x += x40.z * y35.x; total3.y += x40.z * y35.y; total3.z += x40.z * y35.z; total3.w += x40.z * y35.w;
      total3.x += x40.w * y36.x; total3.y += x40.w * y36.y; total3.z += x40.w * y36.z; total3.w += x40.w * y36.w;
      const float4 x41 = shared0[(r0 + 4) * 4 + k];
      total4.x += x41.x * y33.x; total4.y += x41.x * y33.y; total4.z += x41.x * y33.z; total4.w += x41.x * y33.w;
      total4.x += x41.y * y34.x; total4.y += x41.y * y34.y; total4.z += x41.y * y34.z; total4.w += x41.y * y34.w;
      total4.x += x41.z * y35.x; total4.y += x41.z * y35.y; total4.z += x41.z * y35.z; total4.w += x41.z * y35.w;
      total4.x += x41.w * y36.x; total4.y += x41.w * y36.y; total4.z += x41.w * y36.z; total4.w += x41.w * y36.w;
      const float4 x42 = shared0[(r0 + 5) * 4 + k];
      total5.x += x42.x * y33.x; total5.y += x42.x * y33.y; total5.z += x42.x * y33.z; total5.w += x42.x * y33.w;
      total5.x += x42.y * y34.x; total5.y += x42.y * y34.y; total5.z += x42.y * y34.z; total5.w += x42.y * y34.w;
      total5.x += x42.z * y35.x; total5.y += x42.z * y35.y; total5.z += x42.z * y35.z; total5.w += x42.z * y35.w;
      total5.x += x42.w * y36.x; total5.y += x42.w * y36.y; total5.z += x42.w * y36.z; total5.w += x42.w * y36.w;
      const float4 x43 = shared0[(r0 + 6) * 4 + k];
      total6.x += x43.x * y33.x; total6.y += x43.x * y33.y; total6.z += x43.x * y33.z; total6.w += x43.x * y33.w;
      total6.x += x43.y * y34.x; total6.y += x43.y * y34.y; total6.z += x43.y * y34.z; total6.w += x43.y * y34.w;
      total6.x += x43.z * y35.x; total6.y += x43.z * y35.y; total6.z += x43.z * y35.z; total6.w += x43.z * y35.w;
      total6.x += x43.w * y36.x; total6.y += x43.w * y36.y; total6.z += x43.w * y36.z; total6.w += x43.w * y36.w;
      const float4 x44 = shared0[(r0 + 7) * 4 + k];
      total7.x += x44.x * y33.x; total7.y += x44.x * y33.y; total7.z += x44.x * y33.z; total7.w += x44.x * y33.w;
      total7.x += x44.y * y34.x; total7.y += x44.y * y34.y; total7.z += x44.y * y34.z; total7.w += x44.y * y34.w;
      total7.x += x44.z * y35.x; total7.y += x44.z * y35.y; total7.z += x44.z * y35.z; total7.w += x44.z * y35.w;
      total7.x += x44.w * y36.x; total7.y += x44.w * y36.y; total7.z += x44.w * y36.z; total7.w += x44.w * y36.w;
    }
    __syncthreads();
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
