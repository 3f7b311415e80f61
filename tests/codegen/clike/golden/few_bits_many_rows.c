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
  int v19 = 0;
  const unsigned int v20 = (unsigned int)(v19);
  const unsigned int v21 = (v20 & 255u);
  const unsigned int v22 = (v21 * 4u);
  const unsigned int v23 = (v22 & 255u);
  int v51 = 1;
  const unsigned int v52 = (unsigned int)(v51);
  const unsigned int v53 = (v52 & 255u);
  const unsigned int v54 = (v53 * 4u);
  const unsigned int v55 = (v54 & 255u);
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
        const int v12 = (word / 4);
        const int v13 = (v12 * p2);
        const int v14 = (v11 + v13);
        const int v15 = (word % 4);
        const int v16 = (v15 * 4);
        const int v17 = (v14 + v16);
        const uchar4 w10 = ((const uchar4*)X1)[v17 >> 2];
        const unsigned int v18 = w10.x;
        const unsigned int v24 = (v23 & 31u);
        const unsigned int v25 = ((v23 < 8u) ? (v18 >> v24) : 0u);
        const unsigned int v26 = (v25 & 255u);
        const unsigned int v27 = (v26 & 15u);
        const unsigned int v28 = (v27 & 255u);
        const float v29 = (float)(v28);
        const int v30 = (gn * 2);
        const int v31 = (v12 / 2);
        const int v32 = (v30 + v31);
        const unsigned int v33 = X2[v32];
        const int v34 = (v12 % 2);
        const unsigned int v35 = (unsigned int)(v34);
        const unsigned int v36 = (v35 & 255u);
        const unsigned int v37 = (v36 * 4u);
        const unsigned int v38 = (v37 & 255u);
        const unsigned int v39 = (v38 & 31u);
        const unsigned int v40 = ((v38 < 8u) ? (v33 >> v39) : 0u);
        const unsigned int v41 = (v40 & 255u);
        const unsigned int v42 = (v41 & 15u);
        const unsigned int v43 = (v42 & 255u);
        const float v44 = (float)(v43);
        const float v45 = (v29 - v44);
        const int v46 = (gn * 4);
        const int v47 = (v46 + v12);
        const float v48 = X3[v47];
        const float v49 = (v45 * v48);
        const float v50 = ((word0 < p2 && other0 < p3) ? v49 : 0.0f);
        const unsigned int v56 = (v55 & 31u);
        const unsigned int v57 = ((v55 < 8u) ? (v18 >> v56) : 0u);
        const unsigned int v58 = (v57 & 255u);
        const unsigned int v59 = (v58 & 15u);
        const unsigned int v60 = (v59 & 255u);
        const float v61 = (float)(v60);
        const float v62 = (v61 - v44);
        const float v63 = (v62 * v48);
        const float v64 = ((word0 < p2 && other0 < p3) ? v63 : 0.0f);
        const unsigned int v65 = w10.y;
        const unsigned int v66 = (v23 & 31u);
        const unsigned int v67 = ((v23 < 8u) ? (v65 >> v66) : 0u);
        const unsigned int v68 = (v67 & 255u);
        const unsigned int v69 = (v68 & 15u);
        const unsigned int v70 = (v69 & 255u);
        const float v71 = (float)(v70);
        const float v72 = (v71 - v44);
        const float v73 = (v72 * v48);
        const float v74 = ((word0 < p2 && other0 < p3) ? v73 : 0.0f);
        const unsigned int v75 = (v55 & 31u);
        const unsigned int v76 = ((v55 < 8u) ? (v65 >> v75) : 0u);
        const unsigned int v77 = (v76 & 255u);
        const unsigned int v78 = (v77 & 15u);
        const unsigned int v79 = (v78 & 255u);
        const float v80 = (float)(v79);
        const float v81 = (v80 - v44);
        const float v82 = (v81 * v48);
        const float v83 = ((word0 < p2 && other0 < p3) ? v82 : 0.0f);
        const unsigned int v84 = w10.z;
        const unsigned int v85 = (v23 & 31u);
        const unsigned int v86 = ((v23 < 8u) ? (v84 >> v85) : 0u);
        const unsigned int v87 = (v86 & 255u);
        const unsigned int v88 = (v87 & 15u);
        const unsigned int v89 = (v88 & 255u);
        const float v90 = (float)(v89);
        const float v91 = (v90 - v44);
        const float v92 = (v91 * v48);
        const float v93 = ((word0 < p2 && other0 < p3) ? v92 : 0.0f);
        const unsigned int v94 = (v55 & 31u);
        const unsigned int v95 = ((v55 < 8u) ? (v84 >> v94) : 0u);
        const unsigned int v96 = (v95 & 255u);
        const unsigned int v97 = (v96 & 15u);
        const unsigned int v98 = (v97 & 255u);
        const float v99 = (float)(v98);
        const float v100 = (v99 - v44);
        const float v101 = (v100 * v48);
        const float v102 = ((word0 < p2 && other0 < p3) ? v101 : 0.0f);
        const unsigned int v103 = w10.w;
        const unsigned int v104 = (v23 & 31u);
        const unsigned int v105 = ((v23 < 8u) ? (v103 >> v104) : 0u);
        const unsigned int v106 = (v105 & 255u);
        const unsigned int v107 = (v106 & 15u);
        const unsigned int v108 = (v107 & 255u);
        const float v109 = (float)(v108);
        const float v110 = (v109 - v44);
        const float v111 = (v110 * v48);
        const float v112 = ((word0 < p2 && other0 < p3) ? v111 : 0.0f);
        const unsigned int v113 = (v55 & 31u);
        const unsigned int v114 = ((v55 < 8u) ? (v103 >> v113) : 0u);
        const unsigned int v115 = (v114 & 255u);
        const unsigned int v116 = (v115 & 15u);
        const unsigned int v117 = (v116 & 255u);
        const float v118 = (float)(v117);
        const float v119 = (v118 - v44);
        const float v120 = (v119 * v48);
        const float v121 = ((word0 < p2 && other0 < p3) ? v120 : 0.0f);
        ((float*)shared1)[(place * 8 + 0) * 64 + line] = v50;
        ((float*)shared1)[(place * 8 + 1) * 64 + line] = v64;
        ((float*)shared1)[(place * 8 + 2) * 64 + line] = v74;
        ((float*)shared1)[(place * 8 + 3) * 64 + line] = v83;
        ((float*)shared1)[(place * 8 + 4) * 64 + line] = v93;
        ((float*)shared1)[(place * 8 + 5) * 64 + line] = v102;
        ((float*)shared1)[(place * 8 + 6) * 64 + line] = v112;
        ((float*)shared1)[(place * 8 + 7) * 64 + line] = v121;
      }
    }
    __syncthreads();
    for (int k = 0; k < 4; k += 1) {
      const float4 y122 = shared1[(k * 4 + 0) * 16 + c0 / 4 + 0];
      const float4 y123 = shared1[(k * 4 + 1) * 16 + c0 / 4 + 0];
      const float4 y124 = shared1[(k * 4 + 2) * 16 + c0 / 4 + 0];
      const float4 y125 = shared1[(k * 4 + 3) * 16 + c0 / 4 + 0];
      const float4 x126 = shared0[(r0 + 0) * 4 + k];
      total0.x += x126.x * y122.x; total0.y += x126.x * y122.y; total0.z += x126.x * y122.z; total0.w += x126.x * y122.w;
      total0.x += x126.y * y123.x; total0.y += x126.y * y123.y; total0.z += x126.y * y123.z; total0.w += x126.y * y123.w;
      total0.x += x126.z * y124.x; total0.y += x126.z * y124.y; total0.z += x126.z * y124.z; total0.w += x126.z * y124.w;
      total0.x += x126.w * y125.x; total0.y += x126.w * y125.y; total0.z += x126.w * y125.z; total0.w += x126.w * y125.w;
      const float4 x127 = shared0[(r0 + 1) * 4 + k];
      total1.x += x127.x * y122.x; total1.y += x127.x * y122.y; total1.z += x127.x * y122.z; total1.w += x127.x * y122.w;
      total1.x += x127.y * y123.x; total1.y += x127.y * y123.y; total1.z += x127.y * y123.z; total1.w += x127.y * y123.w;
      total1.x += x127.z * y124.x; total1.y += x127.z * y124.y; total1.z += x127.z * y124.z; total1.w += x127.z * y124.w;
      total1.x += x127.w * y125.x; total1.y += x127.w * y125.y; total1.z += x127.w * y125.z; total1.w += x127.w * y125.w;
      const float4 x128 = shared0[(r0 + 2) * 4 + k];
      total2.x += x128.x * y122.x; total2.y += x128.x * y122.y; total2.z += x128.x * y122.z; total2.w += x128.x * y122.w;
      total2.x += x128.y * y123.x; total2.y += x128.y * y123.y; total2.z += x128.y * y123.z; total2.w += x128.y * y123.w;
      total2.x += x128.z * y124.x; total2.y += x128.z * y124.y; total2.z += x128.z * y124.z; total2.w += x128.z * y124.w;
      total2.x += x128.w * y125.x; total2.y += x128.w * y125.y; total2.z += x128.w * y125.z; total2.w += x128.w * y125.w;
      const float4 x129 = shared0[(r0 + 3) * 4 + k];
      total3.x += x129.x * y122.x; total3.y += x129.x * y122.y; total3.z += x129.x * y122.z; total3.w += x129.x * y122.w;
      total3.x += x129.y * y123.x; total3.y += x129.y * y123.y; total3.z += x129.y * y123.z; total3.w += x129.y * y123.w;
      total3.x += x129.z * y124.x; total3.y += x129.z * y124.y; total3.z += x129.z * y124.z; total3.w += x129.z * y124.w;
      total3.x += x129.w * y125.x; total3.y += x129.w * y125.y; total3.z += x129.w * y125.z; total3.w += x129.w * y125.w;
      const float4 x130 = shared0[(r0 + 4) * 4 + k];
      total4.x += x130.x * y122.x; total4.y += x130.x * y122.y; total4.z += x130.x * y122.z; total4.w += x130.x * y122.w;
      total4.x += x130.y * y123.x; total4.y += x130.y * y123.y; total4.z += x130.y * y123.z; total4.w += x130.y * y123.w;
      total4.x += x130.z * y124.x; total4.y += x130.z * y124.y; total4.z += x130.z * y124.z; total4.w += x130.z * y124.w;
      total4.x += x130.w * y125.x; total4.y += x130.w * y125.y; total4.z += x130.w * y125.z; total4.w += x130.w * y125.w;
      const float4 x131 = shared0[(r0 + 5) * 4 + k];
      total5.x += x131.x * y122.x; total5.y += x131.x * y122.y; total5.z += x131.x * y122.z; total5.w += x131.x * y122.w;
      total5.x += x131.y * y123.x; total5.y += x131.y * y123.y; total5.z += x131.y * y123.z; total5.w += x131.y * y123.w;
      total5.x += x131.z * y124.x; total5.y += x131.z * y124.y; total5.z += x131.z * y124.z; total5.w += x131.z * y124.w;
      total5.x += x131.w * y125.x; total5.y += x131.w * y125.y; total5.z += x131.w * y125.z; total5.w += x131.w * y125.w;
      const float4 x132 = shared0[(r0 + 6) * 4 + k];
      total6.x += x132.x * y122.x; total6.y += x132.x * y122.y; total6.z += x132.x * y122.z; total6.w += x132.x * y122.w;
      total6.x += x132.y * y123.x; total6.y += x132.y * y123.y; total6.z += x132.y * y123.z; total6.w += x132.y * y123.w;
      total6.x += x132.z * y124.x; total6.y += x132.z * y124.y; total6.z += x132.z * y124.z; total6.w += x132.z * y124.w;
      total6.x += x132.w * y125.x; total6.y += x132.w * y125.y; total6.z += x132.w * y125.z; total6.w += x132.w * y125.w;
      const float4 x133 = shared0[(r0 + 7) * 4 + k];
      total7.x += x133.x * y122.x; total7.y += x133.x * y122.y; total7.z += x133.x * y122.z; total7.w += x133.x * y122.w;
      total7.x += x133.y * y123.x; total7.y += x133.y * y123.y; total7.z += x133.y * y123.z; total7.w += x133.y * y123.w;
      total7.x += x133.z * y124.x; total7.y += x133.z * y124.y; total7.z += x133.z * y124.z; total7.w += x133.z * y124.w;
      total7.x += x133.w * y125.x; total7.y += x133.w * y125.y; total7.z += x133.w * y125.z; total7.w += x133.w * y125.w;
    }
    __syncthreads();
  }
  for (int r = 0; r < 8; r += 1) {
    const float4 sum134 = ((r == 0) ? total0 : ((r == 1) ? total1 : ((r == 2) ? total2 : ((r == 3) ? total3 : ((r == 4) ? total4 : ((r == 5) ? total5 : ((r == 6) ? total6 : total7)))))));
    const int gm = row + r;
    if (gm < p1) {
      const int v135 = (gm * p3);
      if (column + 0 < p3) {
        const int four = (column + 0) / 4;
        const int v136 = (four * 4);
        const int v137 = (v135 + v136);
        ((float4*)Y0)[(v137 >> 2u)] = make_float4(sum134.x, sum134.y, sum134.z, sum134.w);
      }
    }
  }
}
