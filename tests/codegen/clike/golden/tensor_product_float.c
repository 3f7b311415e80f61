__device__ __forceinline__ unsigned int shared_address(const void* p) {
  unsigned int a;
  asm("{ .reg .u64 t; cvta.to.shared.u64 t, %1; cvt.u32.u64 %0, t; }" : "=r"(a) : "l"(p));
  return a;
}
__device__ __forceinline__ void copy_16(void* to, const void* from, bool inside) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
    :: "r"(shared_address(to)), "l"(from), "r"(inside ? 16 : 0) : "memory");
}
__device__ __forceinline__ void copies_begin() { asm volatile("cp.async.commit_group;" ::: "memory"); }
__device__ __forceinline__ void copies_wait_but_0() { asm volatile("cp.async.wait_group 0;" ::: "memory"); }
__device__ __forceinline__ void copies_wait_but_1() { asm volatile("cp.async.wait_group 1;" ::: "memory"); }
__device__ __forceinline__ void copies_wait_but_2() { asm volatile("cp.async.wait_group 2;" ::: "memory"); }
__device__ __forceinline__ void fragments(unsigned int* r, const void* line) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
    : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(shared_address(line)) : "memory");
}
__device__ __forceinline__ void fragments_turned(unsigned int* r, const void* line) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
    : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(shared_address(line)) : "memory");
}
__device__ __forceinline__ unsigned int to_tf32(float x) {
  unsigned int r;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(r) : "f"(x));
  return r;
}
__device__ __forceinline__ void multiply_f16(float* d, const unsigned int* a, const unsigned int* b) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
    "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
    : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
    : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
__device__ __forceinline__ void multiply_bf16(float* d, const unsigned int* a, const unsigned int* b) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
    "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
    : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
    : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
__device__ __forceinline__ void multiply_tf32(float* d, const unsigned int* a, const unsigned int* b) {
  asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 "
    "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
    : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
    : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
extern "C" __global__ void __launch_bounds__(128) main_kernel(const float* __restrict__ X0, const float* __restrict__ X1, float* __restrict__ Y0, const int p0, const int p1, const int p2, const int p3) {
  __shared__ float4 shared0[1280];
  __shared__ float4 shared1[1280];
  const int z = (int)blockIdx.z;
  const int m0 = (int)blockIdx.y * 64;
  const int n0 = (int)blockIdx.x * 64;
  const int warp = (int)threadIdx.x / 32;
  const int lane = (int)threadIdx.x % 32;
  const int warp_m = warp / 2 * 32;
  const int warp_n = warp % 2 * 32;
  float sums[2][4][4] = {};
  float* const left = (float*)shared0;
  float* const right = (float*)shared1;
  for (int step = -3; step < p3; step += 1) {
    if (step >= 0) {
      copies_wait_but_2();
      __syncthreads();
    }
    if (step + 3 < p3) {
      const int k0 = (step + 3) * 16;
      const int buffer = (step + 3) % 4;
      for (int s = (int)threadIdx.x; s < 256; s += 128) {
        const int line = s / 4;
        const int place = s % 4 * 4;
        const int gk0 = k0 + place;
        const int gm0 = m0 + line;
        const bool inside = (gk0 < p0 && gm0 < p1);
        const int gk = (inside ? gk0 : 0);
        const int gm = (inside ? gm0 : 0);
        const int v0 = (gm * p0);
        const int v1 = (v0 + gk);
        copy_16(&left[buffer * 1280 + line * 20 + place], X0 + v1, inside);
      }
      for (int s = (int)threadIdx.x; s < 256; s += 128) {
        const int line = s / 4;
        const int place = s % 4 * 4;
        const int gk0 = k0 + place;
        const int gn0 = n0 + line;
        const bool inside = (gk0 < p0 && gn0 < p2);
        const int gk = (inside ? gk0 : 0);
        const int gn = (inside ? gn0 : 0);
        const int v2 = (gn * p0);
        const int v3 = (v2 + gk);
        copy_16(&right[buffer * 1280 + line * 20 + place], X1 + v3, inside);
      }
    }
    copies_begin();
    if (step >= 0) {
      const int buffer = step % 4;
      #pragma unroll
      for (int k = 0; k < 16; k += 8) {
        unsigned int a[2][4], b[4][2];
        #pragma unroll
        for (int i = 0; i < 2; i += 1) {
          a[i][0] = to_tf32(left[buffer * 1280 + (warp_m + i * 16 + 0 + lane / 4) * 20 + (k + 0 + lane % 4)]);
          a[i][1] = to_tf32(left[buffer * 1280 + (warp_m + i * 16 + 8 + lane / 4) * 20 + (k + 0 + lane % 4)]);
          a[i][2] = to_tf32(left[buffer * 1280 + (warp_m + i * 16 + 0 + lane / 4) * 20 + (k + 4 + lane % 4)]);
          a[i][3] = to_tf32(left[buffer * 1280 + (warp_m + i * 16 + 8 + lane / 4) * 20 + (k + 4 + lane % 4)]);
        }
        #pragma unroll
        for (int j = 0; j < 4; j += 1) {
          b[j][0] = to_tf32(right[buffer * 1280 + (warp_n + j * 8 + lane / 4) * 20 + (k + 0 + lane % 4)]);
          b[j][1] = to_tf32(right[buffer * 1280 + (warp_n + j * 8 + lane / 4) * 20 + (k + 4 + lane % 4)]);
        }
        #pragma unroll
        for (int i = 0; i < 2; i += 1) {
          #pragma unroll
          for (int j = 0; j < 4; j += 1) {
            multiply_tf32(sums[i][j], a[i], b[j]);
          }
        }
      }
    }
  }
  #pragma unroll
  for (int i = 0; i < 2; i += 1) {
    #pragma unroll
    for (int j = 0; j < 4; j += 1) {
      #pragma unroll
      for (int h = 0; h < 2; h += 1) {
        const int gm = m0 + warp_m + i * 16 + h * 8 + lane / 4;
        #pragma unroll
        for (int c = 0; c < 2; c += 1) {
          const int gn = n0 + warp_n + j * 8 + lane % 4 * 2 + c;
          if (gm < p1 && gn < p2) {
            const float v4 = (sums[i][j][2 * h + c] + 1.0f);
            const int v5 = (gm * p2);
            const int v6 = (v5 + gn);
            Y0[v6] = v4;
          }
        }
      }
    }
  }
}
