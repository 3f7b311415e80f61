__kernel __attribute__((reqd_work_group_size(32, 1, 1))) void main_kernel(__global const float* restrict X0, __global float* restrict Y0, __global const int* restrict P) {
  __local float shared0[32];
  __local float shared1[128];
  const int p0 = P[0];
  const int row = ((int)get_group_id(1) * (int)get_num_groups(0) + (int)get_group_id(0));
  {
    float v0 = as_float(0xff800000u);
    const int v2 = (row * p0);
    for (int k1 = (int)get_local_id(0); k1 < p0; k1 += 32) {
      const int v3 = (v2 + k1);
      const float v4 = X0[v3];
      const float v5 = ((v0 > v4) ? v0 : v4);
      const uint v6 = (as_uint(v0) & 0x7fffffffu);
      const bool v7 = (v6 > 0x7f800000u);
      const float v8 = (v7 ? v0 : v5);
      v0 = v8;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    shared0[(int)get_local_id(0)] = v0;
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int h = 0; h < 5; h += 1) {
      const int apart = 16 >> h;
      if ((int)get_local_id(0) < apart) {
        const float v9 = shared0[(int)get_local_id(0)];
        const float v10 = shared0[(int)get_local_id(0) + apart];
        const float v11 = ((v9 > v10) ? v9 : v10);
        const uint v12 = (as_uint(v9) & 0x7fffffffu);
        const bool v13 = (v12 > 0x7f800000u);
        const float v14 = (v13 ? v9 : v11);
        shared0[(int)get_local_id(0)] = v14;
      }
      barrier(CLK_LOCAL_MEM_FENCE);
    }
    const float v15 = shared0[0];
    float v16 = 0.0f;
    for (int k17 = (int)get_local_id(0); k17 < p0; k17 += 32) {
      const int v18 = (v2 + k17);
      const float v19 = X0[v18];
      const float v20 = (v19 - v15);
      const float v21 = exp(v20);
      shared1[k17] = v21;
      const float v22 = (v16 + v21);
      v16 = v22;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    shared0[(int)get_local_id(0)] = v16;
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int h = 0; h < 5; h += 1) {
      const int apart = 16 >> h;
      if ((int)get_local_id(0) < apart) {
        const float v23 = shared0[(int)get_local_id(0)];
        const float v24 = shared0[(int)get_local_id(0) + apart];
        const float v25 = (v23 + v24);
        shared0[(int)get_local_id(0)] = v25;
      }
      barrier(CLK_LOCAL_MEM_FENCE);
    }
    const float v26 = shared0[0];
    for (int j = (int)get_local_id(0); j < p0; j += 32) {
      const float v27 = shared1[j];
      const float v28 = (v27 / v26);
      const int v29 = (v2 + j);
      Y0[v29] = v28;
    }
  }
}
