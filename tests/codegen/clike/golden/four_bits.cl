__kernel __attribute__((reqd_work_group_size(64, 1, 1))) void main_kernel(__global const uint* restrict X0, __global uint* restrict Y0, __global const int* restrict P) {
  const int p0 = P[0];
  const int p1 = P[1];
  const int p2 = P[2];
  const int p3 = P[3];
  const int w = (((int)get_group_id(1) * (int)get_num_groups(0) + (int)get_group_id(0)) * 64 + (int)get_local_id(0));
  if (w < p0) {
    uint v0 = 0u;
    for (int e = 0; e < 8; e += 1) {
      int i = (w * 8 + e);
      if (i > p1) { i = p1; }
      const int v1 = (i % p2);
      const int v2 = (v1 * p3);
      const int v3 = (i / p2);
      const int v4 = (v2 + v3);
      const uint v5 = (X0[v4 >> 3u] >> ((v4 & 7) * 4));
      const int v6 = as_int(v5);
      const int v7 = ((v6 << 28u) >> 28u);
      const int v8 = (v7 + 1);
      const int v9 = ((v8 << 28u) >> 28u);
      const uint v10 = as_uint(v9);
      const uint v11 = (v10 & 15u);
      v0 = v0 | (v11 << (e * 4));
    }
    Y0[w] = v0;
  }
}
