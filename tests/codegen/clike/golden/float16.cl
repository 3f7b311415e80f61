__kernel __attribute__((reqd_work_group_size(64, 1, 1))) void main_kernel(__global const float* restrict X0, __global ushort* restrict Y0, __global const int* restrict P) {
  const int p0 = P[0];
  const int i = (((int)get_group_id(1) * (int)get_num_groups(0) + (int)get_group_id(0)) * 64 + (int)get_local_id(0));
  if (i < p0) {
    const float v0 = X0[i];
    const uint v1 = as_uint(v0);
    const uint v2 = (v1 & 0x7fffffffu);
    const uint v3 = ((v2 + 4095u + ((v2 >> 13u) & 1u)) >> 13u);
    const uint v4 = (v3 - 114688u);
    const float v5 = ((v2 < 947912704u) ? rint(as_float(v2) * 1.6777216e+07f) : 0.0f);
    const uint v6 = ((v2 < 947912704u) ? (uint)(v5) : v4);
    const uint v7 = ((v3 > 146431u) ? 31744u : v6);
    const uint v8 = ((v1 >> 31u) * 32768u);
    const uint v9 = (v7 | v8);
    const uint v10 = ((v2 > 0x7f800000u) ? (32256u | v8) : v9);
    const uint v11 = (v10 & 32767u);
    const float v12 = ((v11 < 1024u) ? ((float)(v11) * 5.9604645e-08f) : as_float(((v11 << 13u) + 939524096u)));
    const float v13 = ((v11 == 31744u) ? as_float(0x7f800000u) : v12);
    const float v14 = ((v11 > 31744u) ? as_float(0x7fc00000u) : v13);
    const float v15 = (((v10 & 32768u) != 0u) ? (-v14) : v14);
    Y0[i] = (ushort)(v10);
  }
}
