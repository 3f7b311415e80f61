extern "C" __global__ void __launch_bounds__(128) main_kernel(const float* __restrict__ X0, const unsigned char* __restrict__ X1, const unsigned char* __restrict__ X2, const float* __restrict__ X3, float* __restrict__ Y0, const int p0, const int p1, const int p2, const int p3, const int p4, const int p5, const int p6) {
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
  int v15 = 0;
  const unsigned int v16 = (unsigned int)(v15);
  const unsigned int v17 = (v16 & 255u);
  const unsigned int v18 = (v17 * 4u);
  const unsigned int v19 = (v18 & 255u);
  int v48 = 1;
  const unsigned int v49 = (unsigned int)(v48);
  const unsigned int v50 = (v49 & 255u);
  const unsigned int v51 = (v50 * 4u);
  const unsigned int v52 = (v51 & 255u);
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
    for (int s = (int)threadIdx.x; s < 128; s += 128) {
      const int place = s % 2;
      const int line = s / 2;
      const int word0 = k0 / 8 + place;
      const int other0 = n0 + line;
      {
        const int word = ((word0 < p4) ? word0 : p4);
        const int gn = ((other0 < p5) ? other0 : p5);
        const int v11 = (gn * p6);
        const int v12 = (word * 4);
        const int v13 = (v11 + v12);
        const uchar4 w10 = ((const uchar4*)X1)[v13 >> 2];
        const unsigned int v14 = w10.x;
        const unsigned int v20 = (v19 & 31u);
        const unsigned int v21 = ((v19 < 8u) ? (v14 >> v20) : 0u);
        const unsigned int v22 = (v21 & 255u);
        const unsigned int v23 = (v22 & 15u);
        const unsigned int v24 = (v23 & 255u);
        const float v25 = (float)(v24);
        const int v26 = (gn * 2);
        const int v27 = (word / 4);
        const int v28 = (v27 / 2);
        const int v29 = (v26 + v28);
        const unsigned int v30 = X2[v29];
        const int v31 = (v27 % 2);
        const unsigned int v32 = (unsigned int)(v31);
        const unsigned int v33 = (v32 & 255u);
        const unsigned int v34 = (v33 * 4u);
        const unsigned int v35 = (v34 & 255u);
        const unsigned int v36 = (v35 & 31u);
        const unsigned int v37 = ((v35 < 8u) ? (v30 >> v36) : 0u);
        const unsigned int v38 = (v37 & 255u);
        const unsigned int v39 = (v38 & 15u);
        const unsigned int v40 = (v39 & 255u);
        const float v41 = (float)(v40);
        const float v42 = (v25 - v41);
        const int v43 = (gn * 4);
        const int v44 = (v43 + v27);
        const float v45 = X3[v44];
        const float v46 = (v42 * v45);
        const float v47 = ((word0 < p2 && other0 < p3) ? v46 : 0.0f);
        const unsigned int v53 = (v52 & 31u);
        const unsigned int v54 = ((v52 < 8u) ? (v14 >> v53) : 0u);
        const unsigned int v55 = (v54 & 255u);
        const unsigned int v56 = (v55 & 15u);
        const unsigned int v57 = (v56 & 255u);
        const float v58 = (float)(v57);
        const float v59 = (v58 - v41);
        const float v60 = (v59 * v45);
        const float v61 = ((word0 < p2 && other0 < p3) ? v60 : 0.0f);
        const unsigned int v62 = w10.y;
        const unsigned int v63 = (v19 & 31u);
        const unsigned int v64 = ((v19 < 8u) ? (v62 >> v63) : 0u);
        const unsigned int v65 = (v64 & 255u);
        const unsigned int v66 = (v65 & 15u);
        const unsigned int v67 = (v66 & 255u);
        const float v68 = (float)(v67);
        const float v69 = (v68 - v41);
        const float v70 = (v69 * v45);
        const float v71 = ((word0 < p2 && other0 < p3) ? v70 : 0.0f);
        const unsigned int v72 = (v52 & 31u);
        const unsigned int v73 = ((v52 < 8u) ? (v62 >> v72) : 0u);
        const unsigned int v74 = (v73 & 255u);
        const unsigned int v75 = (v74 & 15u);
        const unsigned int v76 = (v75 & 255u);
        const float v77 = (float)(v76);
        const float v78 = (v77 - v41);
        const float v79 = (v78 * v45);
        const float v80 = ((word0 < p2 && other0 < p3) ? v79 : 0.0f);
        const unsigned int v81 = w10.z;
        const unsigned int v82 = (v19 & 31u);
        const unsigned int v83 = ((v19 < 8u) ? (v81 >> v82) : 0u);
        const unsigned int v84 = (v83 & 255u);
        const unsigned int v85 = (v84 & 15u);
        const unsigned int v86 = (v85 & 255u);
        const float v87 = (float)(v86);
        const float v88 = (v87 - v41);
        const float v89 = (v88 * v45);
        const float v90 = ((word0 < p2 && other0 < p3) ? v89 : 0.0f);
        const unsigned int v91 = (v52 & 31u);
        const unsigned int v92 = ((v52 < 8u) ? (v81 >> v91) : 0u);
        const unsigned int v93 = (v92 & 255u);
        const unsigned int v94 = (v93 & 15u);
        const unsigned int v95 = (v94 & 255u);
        const float v96 = (float)(v95);
        const float v97 = (v96 - v41);
        const float v98 = (v97 * v45);
        const float v99 = ((word0 < p2 && other0 < p3) ? v98 : 0.0f);
        const unsigned int v100 = w10.w;
        const unsigned int v101 = (v19 & 31u);
        const unsigned int v102 = ((v19 < 8u) ? (v100 >> v101) : 0u);
        const unsigned int v103 = (v102 & 255u);
        const unsigned int v104 = (v103 & 15u);
        const unsigned int v105 = (v104 & 255u);
        const float v106 = (float)(v105);
        const float v107 = (v106 - v41);
        const float v108 = (v107 * v45);
        const float v109 = ((word0 < p2 && other0 < p3) ? v108 : 0.0f);
        const unsigned int v110 = (v52 & 31u);
        const unsigned int v111 = ((v52 < 8u) ? (v100 >> v110) : 0u);
        const unsigned int v112 = (v111 & 255u);
        const unsigned int v113 = (v112 & 15u);
        const unsigned int v114 = (v113 & 255u);
        const float v115 = (float)(v114);
        const float v116 = (v115 - v41);
        const float v117 = (v116 * v45);
        const float v118 = ((word0 < p2 && other0 < p3) ? v117 : 0.0f);
        ((float*)shared1)[(place * 8 + 0) * 64 + line] = v47;
        ((float*)shared1)[(place * 8 + 1) * 64 + line] = v61;
        ((float*)shared1)[(place * 8 + 2) * 64 + line] = v71;
        ((float*)shared1)[(place * 8 + 3) * 64 + line] = v80;
        ((float*)shared1)[(place * 8 + 4) * 64 + line] = v90;
        ((float*)shared1)[(place * 8 + 5) * 64 + line] = v99;
        ((float*)shared1)[(place * 8 + 6) * 64 + line] = v109;
        ((float*)shared1)[(place * 8 + 7) * 64 + line] = v118;
      }
    }
    __syncthreads();
    for (int k = 0; k < 4; k += 1) {
      const float4 y119 = shared1[(k * 4 + 0) * 16 + c0 / 4 + 0];
      const float4 y120 = shared1[(k * 4 + 1) * 16 + c0 / 4 + 0];
      const float4 y121 = shared1[(k * 4 + 2) * 16 + c0 / 4 + 0];
      const float4 y122 = shared1[(k * 4 + 3) * 16 + c0 / 4 + 0];
      const float4 x123 = shared0[(r0 + 0) * 4 + k];
      total0.x += x123.x * y119.x; total0.y += x123.x * y119.y; total0.z += x123.x * y119.z; total0.w += x123.x * y119.w;
      total0.x += x123.y * y120.x; total0.y += x123.y * y120.y; total0.z += x123.y * y120.z; total0.w += x123.y * y120.w;
      total0.x += x123.z * y121.x; total0.y += x123.z * y121.y; total0.z += x123.z * y121.z; total0.w += x123.z * y121.w;
      total0.x += x123.w * y122.x; total0.y += x123.w * y122.y; total0.z += x123.w * y122.z; total0.w += x123.w * y122.w;
      const float4 x124 = shared0[(r0 + 1) * 4 + k];
      total1.x += x124.x * y119.x; total1.y += x124.x * y119.y; total1.z += x124.x * y119.z; total1.w += x124.x * y119.w;
      total1.x += x124.y * y120.x; total1.y += x124.y * y120.y; total1.z += x124.y * y120.z; total1.w += x124.y * y120.w;
      total1.x += x124.z * y121.x; total1.y += x124.z * y121.y; total1.z += x124.z * y121.z; total1.w += x124.z * y121.w;
      total1.x += x124.w * y122.x; total1.y += x124.w * y122.y; total1.z += x124.w * y122.z; total1.w += x124.w * y122.w;
      const float4 x125 = shared0[(r0 + 2) * 4 + k];
      total2.x += x125.x * y119.x; total2.y += x125.x * y119.y; total2.z += x125.x * y119.z; total2.w += x125.x * y119.w;
      total2.x += x125.y * y120.x; total2.y += x125.y * y120.y; total2.z += x125.y * y120.z; total2.w += x125.y * y120.w;
      total2.x += x125.z * y121.x; total2.y += x125.z * y121.y; total2.z += x125.z * y121.z; total2.w += x125.z * y121.w;
      total2.x += x125.w * y122.x; total2.y += x125.w * y122.y; total2.z += x125.w * y122.z; total2.w += x125.w * y122.w;
      const float4 x126 = shared0[(r0 + 3) * 4 + k];
      total3.x += x126.x * y119.x; total3.y += x126.x * y119.y; total3.z += x126.x * y119.z; total3.w += x126.x * y119.w;
      total3.x += x126.y * y120.x; total3.y += x126.y * y120.y; total3.z += x126.y * y120.z; total3.w += x126.y * y120.w;
      total3.x += x126.z * y121.x; total3.y += x126.z * y121.y; total3.z += x126.z * y121.z; total3.w += x126.z * y121.w;
      total3.x += x126.w * y122.x; total3.y += x126.w * y122.y; total3.z += x126.w * y122.z; total3.w += x126.w * y122.w;
      const float4 x127 = shared0[(r0 + 4) * 4 + k];
      total4.x += x127.x * y119.x; total4.y += x127.x * y119.y; total4.z += x127.x * y119.z; total4.w += x127.x * y119.w;
      total4.x += x127.y * y120.x; total4.y += x127.y * y120.y; total4.z += x127.y * y120.z; total4.w += x127.y * y120.w;
      total4.x += x127.z * y121.x; total4.y += x127.z * y121.y; total4.z += x127.z * y121.z; total4.w += x127.z * y121.w;
      total4.x += x127.w * y122.x; total4.y += x127.w * y122.y; total4.z += x127.w * y122.z; total4.w += x127.w * y122.w;
      const float4 x128 = shared0[(r0 + 5) * 4 + k];
      total5.x += x128.x * y119.x; total5.y += x128.x * y119.y; total5.z += x128.x * y119.z; total5.w += x128.x * y119.w;
      total5.x += x128.y * y120.x; total5.y += x128.y * y120.y; total5.z += x128.y * y120.z; total5.w += x128.y * y120.w;
      total5.x += x128.z * y121.x; total5.y += x128.z * y121.y; total5.z += x128.z * y121.z; total5.w += x128.z * y121.w;
      total5.x += x128.w * y122.x; total5.y += x128.w * y122.y; total5.z += x128.w * y122.z; total5.w += x128.w * y122.w;
      const float4 x129 = shared0[(r0 + 6) * 4 + k];
      total6.x += x129.x * y119.x; total6.y += x129.x * y119.y; total6.z += x129.x * y119.z; total6.w += x129.x * y119.w;
      total6.x += x129.y * y120.x; total6.y += x129.y * y120.y; total6.z += x129.y * y120.z; total6.w += x129.y * y120.w;
      total6.x += x129.z * y121.x; total6.y += x129.z * y121.y; total6.z += x129.z * y121.z; total6.w += x129.z * y121.w;
      total6.x += x129.w * y122.x; total6.y += x129.w * y122.y; total6.z += x129.w * y122.z; total6.w += x129.w * y122.w;
      const float4 x130 = shared0[(r0 + 7) * 4 + k];
      total7.x += x130.x * y119.x; total7.y += x130.x * y119.y; total7.z += x130.x * y119.z; total7.w += x130.x * y119.w;
      total7.x += x130.y * y120.x; total7.y += x130.y * y120.y; total7.z += x130.y * y120.z; total7.w += x130.y * y120.w;
      total7.x += x130.z * y121.x; total7.y += x130.z * y121.y; total7.z += x130.z * y121.z; total7.w += x130.z * y121.w;
      total7.x += x130.w * y122.x; total7.y += x130.w * y122.y; total7.z += x130.w * y122.z; total7.w += x130.w * y122.w;
    }
    __syncthreads();
  }
  for (int r = 0; r < 8; r += 1) {
    const float4 sum131 = ((r == 0) ? total0 : ((r == 1) ? total1 : ((r == 2) ? total2 : ((r == 3) ? total3 : ((r == 4) ? total4 : ((r == 5) ? total5 : ((r == 6) ? total6 : total7)))))));
    const int gm = row + r;
    if (gm < p1) {
      const int v132 = (gm * p3);
      if (column + 0 < p3) {
        const int four = (column + 0) / 4;
        const int v133 = (four * 4);
        const int v134 = (v132 + v133);
        ((float4*)Y0)[(v134 >> 2u)] = make_float4(sum131.x, sum131.y, sum131.z, sum131.w);
      }
    }
  }
}
