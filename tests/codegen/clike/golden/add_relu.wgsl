@group(0) @binding(0) var<storage, read_write> X0: array<f32>;
@group(0) @binding(1) var<storage, read_write> X1: array<f32>;
@group(0) @binding(2) var<storage, read_write> Y0: array<f32>;
@group(0) @binding(3) var<uniform> P: array<vec4<i32>, 1>;
@compute @workgroup_size(64)
fn main_kernel(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) grid: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
  let p0: i32 = P[0].x;
  let p1: i32 = P[0].y;
  let i: i32 = ((i32(group.y) * i32(grid.x) + i32(group.x)) * 64 + i32(thread));
  if (i < p0) {
    let v0: f32 = X0[i];
    let v1: i32 = (i % p1);
    let v2: f32 = X1[v1];
    let v3: f32 = (v0 + v2);
    let v4: f32 = select(0.0f, v3, (v3 > 0.0f));
    let v5: u32 = (bitcast<u32>(v3) & 0x7fffffffu);
    let v6: bool = (v5 > 0x7f800000u);
    let v7: f32 = select(v4, v3, v6);
    Y0[i] = v7;
  }
}
