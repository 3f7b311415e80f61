@group(0) @binding(0) var<storage, read_write> X0: array<f32>;
@group(0) @binding(1) var<storage, read_write> X1: array<i64>;
@group(0) @binding(2) var<storage, read_write> Y0: array<f32>;
@group(0) @binding(3) var<uniform> P: array<vec4<i32>, 1>;
@group(0) @binding(4) var<storage, read_write> S: array<u32>;
@compute @workgroup_size(64)
fn main_kernel(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) grid: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
  let p0: i32 = P[0].x;
  let p1: i32 = P[0].y;
  let p2: i32 = P[0].z;
  let p3: i32 = P[0].w;
  let i: i32 = ((i32(group.y) * i32(grid.x) + i32(group.x)) * 64 + i32(thread));
  if (i < p0) {
    let v0: i32 = (i / p1);
    let v1: i64 = X1[v0];
    if ((v1 < 0li) || (v1 >= (i64(u64(bitcast<u32>(p2) ^ 0x80000000u)) - 2147483648li))) { S[0] = 1u; }
    let v2: i64 = select(v1, (i64(u64(bitcast<u32>(p3) ^ 0x80000000u)) - 2147483648li), (v1 > (i64(u64(bitcast<u32>(p3) ^ 0x80000000u)) - 2147483648li)));
    let v3: i64 = select(v2, 0li, (v2 < 0li));
    let v4: i32 = i32(v3);
    let v5: i32 = (v4 * p1);
    let v6: i32 = (i % p1);
    let v7: i32 = (v5 + v6);
    let v8: f32 = X0[v7];
    Y0[i] = v8;
  }
}
