__kernel __attribute__((reqd_work_group_size(64, 1, 1))) void main_kernel(__global const float* restrict X0, __global const float* restrict X1, __global const float* restrict X2, __global float* restrict Y0, __global const int* restrict P) {
  __local float4 shared0[64];
  __local float4 shared1[64];
  const int p0 = P[0];
  const int p1 = P[1];
  const int p2 = P[2];
  const int p3 = P[3];
  const int p4 = P[4];
  const int p5 = P[5];
  const int group_ = ((int)get_group_id(1) * (int)get_num_groups(0) + (int)get_group_id(0));
  if (group_ < p5) {
    const int z = group_ / p0;
    const int line = (group_ % p0) * 64 + (int)get_local_id(0);
    const int gm = ((line < p1) ? line : p2);
    float highest = as_float(0xff800000u);
    float powers = 0.0f;
    float4 sum0 = (float4)(0.0f, 0.0f, 0.0f, 0.0f);
    float4 sum1 = (float4)(0.0f, 0.0f, 0.0f, 0.0f);
    const int v1 = (z * p3);
    const int v2 = (gm * p4);
    const int v3 = (v1 + v2);
    const float4 w0 = vload4(v3 >> 2, X0);
    const int v5 = (v3 + 4);
    const float4 w4 = vload4(v5 >> 2, X0);
    for (int k0 = 0; k0 < p1; k0 += 32) {
      for (int s = (int)get_local_id(0); s < 64; s += 64) {
        const int key = k0 + s / 2;
        const int gn = ((key < p2) ? key : p2);
        const int place = (s % 2) * 4;
        const int v7 = (gn * p4);
        const int v8 = (v1 + v7);
        const int v9 = (v8 + place);
        const float4 w6 = vload4(v9 >> 2, X1);
        shared0[s] = w6;
      }
      for (int s = (int)get_local_id(0); s < 64; s += 64) {
        const int key = k0 + s / 2;
        const int gn = ((key < p2) ? key : p2);
        const int place = (s % 2) * 4;
        const int v11 = (gn * p4);
        const int v12 = (v1 + v11);
        const int v13 = (v12 + place);
        const float4 w10 = vload4(v13 >> 2, X2);
        shared1[s] = w10;
      }
      const int v14 = (p1 - k0);
      const int some = ((v14 < 32) ? v14 : 32);
      barrier(CLK_LOCAL_MEM_FENCE);
      for (int j = 0; j < some; j += 1) {
        const int gn = k0 + j;
        float v15 = 0.0f;
        const float4 w16 = shared0[j * 2 + 0];
        v15 = v15 + (w0.x * w16.x + w0.y * w16.y + w0.z * w16.z + w0.w * w16.w);
        const float4 w17 = shared0[j * 2 + 1];
        v15 = v15 + (w4.x * w17.x + w4.y * w17.y + w4.z * w17.z + w4.w * w17.w);
        const float v18 = (v15 * 0.25f);
        if (!(v18 == as_float(0xff800000u))) {
          if (v18 > highest) {
            const float less = exp(highest - v18);
            powers = powers * less;
            sum0.x *= less; sum0.y *= less; sum0.z *= less; sum0.w *= less;
            sum1.x *= less; sum1.y *= less; sum1.z *= less; sum1.w *= less;
            highest = v18;
          }
          const float power = exp(v18 - highest);
          powers = powers + power;
          const float4 w19 = shared1[j * 2 + 0];
          sum0 += power * w19;
          const float4 w20 = shared1[j * 2 + 1];
          sum1 += power * w20;
        }
      }
      barrier(CLK_LOCAL_MEM_FENCE);
    }
    const int i = z * p1 + line;
    const int v22 = (i * p4);
    if (line < p1) {
      const float v21 = (1.0f / powers);
      Y0[v22 + 0] = sum0.x * v21;
      Y0[v22 + 1] = sum0.y * v21;
      Y0[v22 + 2] = sum0.z * v21;
      Y0[v22 + 3] = sum0.w * v21;
      Y0[v22 + 4] = sum1.x * v21;
      Y0[v22 + 5] = sum1.y * v21;
      Y0[v22 + 6] = sum1.z * v21;
      Y0[v22 + 7] = sum1.w * v21;
    }
  }
}

__kernel __attribute__((reqd_work_group_size(64, 1, 1))) void main_kernel(__global const float* restrict X0, __global float* restrict Y0, __global const int* restrict P) {
  const int p0 = P[0];
  const int w = (((int)get_group_id(1) * (int)get_num_groups(0) + (int)get_group_id(0)) * 64 + (int)get_local_id(0));
  if (w < p0) {
    const int a1 = w;
    const int v1 = (a1 * 4);
    const float4 w0 = vload4(v1 >> 2, X0);
    const float v2 = w0.x;
    const float v3 = w0.y;
    const float v4 = w0.z;
    const float v5 = w0.w;
    vstore4((float4)(v2, v3, v4, v5), w, Y0);
  }
}
