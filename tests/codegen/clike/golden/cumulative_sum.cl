__kernel __attribute__((reqd_work_group_size(64, 1, 1))) void main_kernel(__global const int* restrict X0, __global int* restrict Y0, __global const int* restrict P) {
  const int p0 = P[0];
  const int p1 = P[1];
  const int line = (((int)get_group_id(1) * (int)get_num_groups(0) + (int)get_group_id(0)) * 64 + (int)get_local_id(0));
  if (line < p0) {
    int v0 = 0;
    const int v1 = (line * p1);
    for (int s = 0; s < p1; s += 1) {
      const int j = s;
      const int v2 = (v1 + j);
      const int v3 = X0[v2];
      const int v4 = (v0 + v3);
      v0 = v4;
      Y0[v2] = v0;
    }
  }
}

__kernel __attribute__((reqd_work_group_size(64, 1, 1))) void main_kernel(__global const int* restrict X0, __global int* restrict Y0, __global const int* restrict P) {
  const int p0 = P[0];
  const int i = (((int)get_group_id(1) * (int)get_num_groups(0) + (int)get_group_id(0)) * 64 + (int)get_local_id(0));
  if (i < p0) {
    const int v0 = X0[i];
    Y0[i] = v0;
  }
}
