__kernel __attribute__((reqd_work_group_size(64, 1, 1))) void main_kernel(__global const float* restrict X0, __global float* restrict Y0, __global long* restrict Y1, __global const int* restrict P) {
  const int p0 = P[0];
  const int p1 = P[1];
  const int i = (((int)get_group_id(1) * (int)get_num_groups(0) + (int)get_group_id(0)) * 64 + (int)get_local_id(0));
  if (i < p0) {
    const float v0 = X0[i];
    const int v1 = (i % p1);
    int v2 = 0;
    const int v3 = (i / p1);
    const int v4 = (v3 * p1);
    for (int j = 0; j < p1; j += 1) {
      const int v5 = (v4 + j);
      const float v6 = X0[v5];
      const uint v7 = (as_uint(v6) & 0x7fffffffu);
      const bool v8 = (v7 > 0x7f800000u);
      const uint v9 = (as_uint(v0) & 0x7fffffffu);
      const bool v10 = (v9 > 0x7f800000u);
      const uint v11 = (as_uint(v0) & 0x7fffffffu);
      const bool v12 = (v11 > 0x7f800000u);
      const uint v13 = (as_uint(v6) & 0x7fffffffu);
      const bool v14 = (v13 > 0x7f800000u);
      if (((v6 < v0) || (v10 && !v8)) || (!((v0 < v6) || (v14 && !v12)) && j < v1)) { v2 = v2 + 1; }
    }
    const int rank = v2;
    const int v15 = (v4 + rank);
    Y0[v15] = v0;
    Y1[v15] = (long)(v1);
  }
}

__kernel __attribute__((reqd_work_group_size(64, 1, 1))) void main_kernel(__global const float* restrict X0, __global float* restrict Y0, __global const int* restrict P) {
  const int p0 = P[0];
  const int i = (((int)get_group_id(1) * (int)get_num_groups(0) + (int)get_group_id(0)) * 64 + (int)get_local_id(0));
  if (i < p0) {
    const float v0 = X0[i];
    Y0[i] = v0;
  }
}
