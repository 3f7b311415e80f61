@group(0) @binding(0) var<storage, read_write> X0: array<f32>;
@group(0) @binding(1) var<storage, read_write> Y0: array<f32>;
@group(0) @binding(2) var<storage, read_write> Y1: array<i64>;
@group(0) @binding(3) var<uniform> P: array<vec4<i32>, 1>;
@compute @workgroup_size(64)
fn main_kernel(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) grid: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
  let p0: i32 = P[0].x;
  let p1: i32 = P[0].y;
  let i: i32 = ((i32(group.y) * i32(grid.x) + i32(group.x)) * 64 + i32(thread));
  if (i < p0) {
    let v0: f32 = X0[i];
    let v1: i32 = (i % p1);
    var v2: i32 = 0;
    let v3: i32 = (i / p1);
    let v4: i32 = (v3 * p1);
    for (var j: i32 = 0; j < p1; j += 1) {
      let v5: i32 = (v4 + j);
      let v6: f32 = X0[v5];
      let v7: u32 = (bitcast<u32>(v6) & 0x7fffffffu);
      let v8: bool = (v7 > 0x7f800000u);
      let v9: u32 = (bitcast<u32>(v0) & 0x7fffffffu);
      let v10: bool = (v9 > 0x7f800000u);
      let v11: u32 = (bitcast<u32>(v0) & 0x7fffffffu);
      let v12: bool = (v11 > 0x7f800000u);
      let v13: u32 = (bitcast<u32>(v6) & 0x7fffffffu);
      let v14: bool = (v13 > 0x7f800000u);
      if (((v6 < v0) || (v10 && !v8)) || (!((v0 < v6) || (v14 && !v12)) && j < v1)) { v2 = v2 + 1; }
    }
    let rank: i32 = v2;
    let v15: i32 = (v4 + rank);
    Y0[v15] = v0;
    Y1[v15] = (i64(u64(bitcast<u32>(v1) ^ 0x80000000u)) - 2147483648li);
  }
}

@group(0) @binding(0) var<storage, read_write> X0: array<f32>;
@group(0) @binding(1) var<storage, read_write> Y0: array<f32>;
@group(0) @binding(2) var<uniform> P: array<vec4<i32>, 1>;
@compute @workgroup_size(64)
fn main_kernel(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) grid: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
  let p0: i32 = P[0].x;
  let i: i32 = ((i32(group.y) * i32(grid.x) + i32(group.x)) * 64 + i32(thread));
  if (i < p0) {
    let v0: f32 = X0[i];
    Y0[i] = v0;
  }
}
