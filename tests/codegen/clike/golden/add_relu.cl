__kernel __attribute__((reqd_work_group_size(64, 1, 1))) void main_kernel(__global const float* restrict X0, __global const float* restrict X1, __global float* restrict Y0, __global const int* restrict P) {
  const int p0 = P[0];
  const int p1 = P[1];
  const int i = (((int)get_group_id(1) * (int)get_num_groups(0) + (int)get_group_id(0)) * 64 + (int)get_local_id(0));
  if (i < p0) {
    const float v0 = X0[i];
    const int v1 = (i % p1);
    const float v2 = X1[v1];
    const float v3 = (v0 + v2);
    const float v4 = ((v3 > 0.0f) ? v3 : 0.0f);
    const uint v5 = (as_uint(v3) & 0x7fffffffu);
    const bool v6 = (v5 > 0x7f800000u);
    const float v7 = (v6 ? v3 : v4);
    Y0[i] = v7;
  }
}
