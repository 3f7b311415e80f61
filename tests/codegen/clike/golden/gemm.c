extern "C" __global__ void __launch_bounds__(256) main_kernel(const float* __restrict__ X0, const float* __restrict__ X1, const float* __restrict__ X2, float* __restrict__ Y0, const int* __restrict__ P) {
  __shared__ float shared0[1024];
  __shared__ float shared1[1024];
  const int p0 = P[0];
  const int p1 = P[1];
  const int p2 = P[2];
  const int p3 = P[3];
  const int p4 = P[4];
  const int p5 = P[5];
  const int z = (int)blockIdx.z;
  const int m0 = (int)blockIdx.y * 64;
  const int n0 = (int)blockIdx.x * 64;
  const int r0 = ((int)threadIdx.x / 16) * 4;
  const int c0 = ((int)threadIdx.x % 16) * 4;
  const int row = m0 + r0;
  const int column = n0 + c0;
  float v0 = 0.0f;
  float v1 = 0.0f;
  float v2 = 0.0f;
  float v3 = 0.0f;
  float v4 = 0.0f;
  float v5 = 0.0f;
  float v6 = 0.0f;
  float v7 = 0.0f;
  float v8 = 0.0f;
  float v9 = 0.0f;
  float v10 = 0.0f;
  float v11 = 0.0f;
  float v12 = 0.0f;
  float v13 = 0.0f;
  float v14 = 0.0f;
  float v15 = 0.0f;
  for (int k0 = 0; k0 < p1; k0 += 16) {
    for (int s = (int)threadIdx.x; s < 1024; s += 256) {
      const int gk = k0 + s % 16;
      const int gm = m0 + s / 16;
      const int v16 = ((gm > p0) ? p0 : gm);
      const int v17 = ((v16 < 0) ? 0 : v16);
      const int v18 = (v17 * p1);
      const int v19 = ((gk > p2) ? p2 : gk);
      const int v20 = ((v19 < 0) ? 0 : v19);
      const int v21 = (v18 + v20);
      const float v22 = X0[v21];
      shared0[(s % 16) * 64 + s / 16] = ((gk < p1 && gm < p3) ? v22 : 0.0f);
    }
    for (int s = (int)threadIdx.x; s < 1024; s += 256) {
      const int gk = k0 + s / 64;
      const int gn = n0 + s % 64;
      const int v23 = ((gk > p2) ? p2 : gk);
      const int v24 = ((v23 < 0) ? 0 : v23);
      const int v25 = (v24 * p4);
      const int v26 = ((gn > p5) ? p5 : gn);
      const int v27 = ((v26 < 0) ? 0 : v26);
      const int v28 = (v25 + v27);
      const float v29 = X1[v28];
      shared1[s] = ((gk < p1 && gn < p4) ? v29 : 0.0f);
    }
    __syncthreads();
    for (int k = 0; k < 16; k += 1) {
      const float v30 = shared0[k * 64 + r0 + 0];
      const float v31 = shared0[k * 64 + r0 + 1];
      const float v32 = shared0[k * 64 + r0 + 2];
      const float v33 = shared0[k * 64 + r0 + 3];
      const float v34 = shared1[k * 64 + c0 + 0];
      const float v35 = shared1[k * 64 + c0 + 1];
      const float v36 = shared1[k * 64 + c0 + 2];
      const float v37 = shared1[k * 64 + c0 + 3];
      v0 = v0 + v30 * v34;
      v1 = v1 + v30 * v35;
      v2 = v2 + v30 * v36;
      v3 = v3 + v30 * v37;
      v4 = v4 + v31 * v34;
      v5 = v5 + v31 * v35;
      v6 = v6 + v31 * v36;
      v7 = v7 + v31 * v37;
      v8 = v8 + v32 * v34;
      v9 = v9 + v32 * v35;
      v10 = v10 + v32 * v36;
      v11 = v11 + v32 * v37;
      v12 = v12 + v33 * v34;
      v13 = v13 + v33 * v35;
      v14 = v14 + v33 * v36;
      v15 = v15 + v33 * v37;
    }
    __syncthreads();
  }
  {
    const int gm = row + 0;
    const int gn = column + 0;
    if (gm < p3 && gn < p4) {
      const float v38 = X2[gn];
      const float v39 = (v0 + v38);
      const int v40 = (gm * p4);
      const int v41 = (v40 + gn);
      Y0[v41] = v39;
    }
  }
  {
    const int gm = row + 0;
    const int gn = column + 1;
    if (gm < p3 && gn < p4) {
      const float v42 = X2[gn];
      const float v43 = (v1 + v42);
      const int v44 = (gm * p4);
      const int v45 = (v44 + gn);
      Y0[v45] = v43;
    }
  }
  {
    const int gm = row + 0;
    const int gn = column + 2;
    if (gm < p3 && gn < p4) {
      const float v46 = X2[gn];
      const float v47 = (v2 + v46);
      const int v48 = (gm * p4);
      const int v49 = (v48 + gn);
      Y0[v49] = v47;
    }
  }
  {
    const int gm = row + 0;
    const int gn = column + 3;
    if (gm < p3 && gn < p4) {
      const float v50 = X2[gn];
      const float v51 = (v3 + v50);
      const int v52 = (gm * p4);
      const int v53 = (v52 + gn);
      Y0[v53] = v51;
    }
  }
  {
    const int gm = row + 1;
    const int gn = column + 0;
    if (gm < p3 && gn < p4) {
      const float v54 = X2[gn];
      const float v55 = (v4 + v54);
      const int v56 = (gm * p4);
      const int v57 = (v56 + gn);
      Y0[v57] = v55;
    }
  }
  {
    const int gm = row + 1;
    const int gn = column + 1;
    if (gm < p3 && gn < p4) {
      const float v58 = X2[gn];
      const float v59 = (v5 + v58);
      const int v60 = (gm * p4);
      const int v61 = (v60 + gn);
      Y0[v61] = v59;
    }
  }
  {
    const int gm = row + 1;
    const int gn = column + 2;
    if (gm < p3 && gn < p4) {
      const float v62 = X2[gn];
      const float v63 = (v6 + v62);
      const int v64 = (gm * p4);
      const int v65 = (v64 + gn);
      Y0[v65] = v63;
    }
  }
  {
    const int gm = row + 1;
    const int gn = column + 3;
    if (gm < p3 && gn < p4) {
      const float v66 = X2[gn];
      const float v67 = (v7 + v66);
      const int v68 = (gm * p4);
      const int v69 = (v68 + gn);
      Y0[v69] = v67;
    }
  }
  {
    const int gm = row + 2;
    const int gn = column + 0;
    if (gm < p3 && gn < p4) {
      const float v70 = X2[gn];
      const float v71 = (v8 + v70);
      const int v72 = (gm * p4);
      const int v73 = (v72 + gn);
      Y0[v73] = v71;
    }
  }
  {
    const int gm = row + 2;
    const int gn = column + 1;
    if (gm < p3 && gn < p4) {
      const float v74 = X2[gn];
      const float v75 = (v9 + v74);
      const int v76 = (gm * p4);
      const int v77 = (v76 + gn);
      Y0[v77] = v75;
    }
  }
  {
    const int gm = row + 2;
    const int gn = column + 2;
    if (gm < p3 && gn < p4) {
      const float v78 = X2[gn];
      const float v79 = (v10 + v78);
      const int v80 = (gm * p4);
      const int v81 = (v80 + gn);
      Y0[v81] = v79;
    }
  }
  {
    const int gm = row + 2;
    const int gn = column + 3;
    if (gm < p3 && gn < p4) {
      const float v82 = X2[gn];
      const float v83 = (v11 + v82);
      const int v84 = (gm * p4);
      const int v85 = (v84 + gn);
      Y0[v85] = v83;
    }
  }
  {
    const int gm = row + 3;
    const int gn = column + 0;
    if (gm < p3 && gn < p4) {
      const float v86 = X2[gn];
      const float v87 = (v12 + v86);
      const int v88 = (gm * p4);
      const int v89 = (v88 + gn);
      Y0[v89] = v87;
    }
  }
  {
    const int gm = row + 3;
    const int gn = column + 1;
    if (gm < p3 && gn < p4) {
      const float v90 = X2[gn];
      const float v91 = (v13 + v90);
      const int v92 = (gm * p4);
      const int v93 = (v92 + gn);
      Y0[v93] = v91;
    }
  }
  {
    const int gm = row + 3;
    const int gn = column + 2;
    if (gm < p3 && gn < p4) {
      const float v94 = X2[gn];
      const float v95 = (v14 + v94);
      const int v96 = (gm * p4);
      const int v97 = (v96 + gn);
      Y0[v97] = v95;
    }
  }
  {
    const int gm = row + 3;
    const int gn = column + 3;
    if (gm < p3 && gn < p4) {
      const float v98 = X2[gn];
      const float v99 = (v15 + v98);
      const int v100 = (gm * p4);
      const int v101 = (v100 + gn);
      Y0[v101] = v99;
    }
  }
}
