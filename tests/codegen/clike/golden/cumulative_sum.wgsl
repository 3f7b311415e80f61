@group(0) @binding(0) var<storage, read_write> X0: array<i32>;
@group(0) @binding(1) var<storage, read_write> Y0: array<i32>;
@group(0) @binding(2) var<uniform> P: array<vec4<i32>, 1>;
@compute @workgroup_size(64)
fn main_kernel(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) grid: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
  let p0: i32 = P[0].x;
  let p1: i32 = P[0].y;
  let line: i32 = ((i32(group.y) * i32(grid.x) + i32(group.x)) * 64 + i32(thread));
  if (line < p0) {
    var v0: i32 = 0;
    let v1: i32 = (line * p1);
    for (var s: i32 = 0; s < p1; s += 1) {
      let j: i32 = s;
      let v2: i32 = (v1 + j);
      let v3: i32 = X0[v2];
      let v4: i32 = (v0 + v3);
      v0 = v4;
      Y0[v2] = v0;
    }
  }
}

@group(0) @binding(0) var<storage, read_write> X0: array<i32>;
@group(0) @binding(1) var<storage, read_write> Y0: array<i32>;
@group(0) @binding(2) var<uniform> P: array<vec4<i32>, 1>;
@compute @workgroup_size(64)
fn main_kernel(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) grid: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
  let p0: i32 = P[0].x;
  let i: i32 = ((i32(group.y) * i32(grid.x) + i32(group.x)) * 64 + i32(thread));
  if (i < p0) {
    let v0: i32 = X0[i];
    Y0[i] = v0;
  }
}
