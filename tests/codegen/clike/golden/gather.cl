__kernel __attribute__((reqd_work_group_size(64, 1, 1))) void main_kernel(__global const float* restrict X0, __global const long* restrict X1, __global float* restrict Y0, __global const int* restrict P, __global uint* restrict S) {
  const int p0 = P[0];
  const int p1 = P[1];
  const int p2 = P[2];
  const int p3 = P[3];
  const int i = (((int)get_group_id(1) * (int)get_num_groups(0) + (int)get_group_id(0)) * 64 + (int)get_local_id(0));
  if (i < p0) {
    const int v0 = (i / p1);
    const long v1 = X1[v0];
    if ((v1 < 0L) || (v1 >= (long)(p2))) { S[0] = 1u; }
    const long v2 = ((v1 > (long)(p3)) ? (long)(p3) : v1);
    const long v3 = ((v2 < 0L) ? 0L : v2);
    const int v4 = (int)(v3);
    const int v5 = (v4 * p1);
    const int v6 = (i % p1);
    const int v7 = (v5 + v6);
    const float v8 = X0[v7];
    Y0[i] = v8;
  }
}
