__kernel __attribute__((reqd_work_group_size(256, 1, 1))) void main_kernel(__global const float* restrict X0, __global float* restrict Y0, __global const int* restrict P) {
  __local float shared0[256];
  const int p0 = P[0];
  const int row = ((int)get_group_id(1) * (int)get_num_groups(0) + (int)get_group_id(0));
  {
    float v0 = 0.0f;
    const int v2 = (row * p0);
    for (int k1 = (int)get_local_id(0); k1 < p0; k1 += 256) {
      const int v3 = (v2 + k1);
      const float v4 = X0[v3];
      const float v5 = (v4 * 2.0f);
      const float v6 = (v0 + v5);
      v0 = v6;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    shared0[(int)get_local_id(0)] = v0;
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int h = 0; h < 8; h += 1) {
      const int apart = 128 >> h;
      if ((int)get_local_id(0) < apart) {
        const float v7 = shared0[(int)get_local_id(0)];
        const float v8 = shared0[(int)get_local_id(0) + apart];
        const float v9 = (v7 + v8);
        shared0[(int)get_local_id(0)] = v9;
      }
      barrier(CLK_LOCAL_MEM_FENCE);
    }
    const float v10 = shared0[0];
    for (int j = (int)get_local_id(0); j < 1; j += 256) {
      Y0[row] = v10;
    }
  }
}
