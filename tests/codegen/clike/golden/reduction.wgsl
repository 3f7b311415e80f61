@group(0) @binding(0) var<storage, read_write> X0: array<f32>;
@group(0) @binding(1) var<storage, read_write> Y0: array<f32>;
@group(0) @binding(2) var<uniform> P: array<vec4<i32>, 1>;
var<workgroup> shared0: array<f32, 256>;
@compute @workgroup_size(256)
fn main_kernel(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) grid: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
  let p0: i32 = P[0].x;
  let row: i32 = (i32(group.y) * i32(grid.x) + i32(group.x));
  {
    var v0: f32 = 0.0f;
    let v2: i32 = (row * p0);
    for (var k1: i32 = i32(thread); k1 < p0; k1 += 256) {
      let v3: i32 = (v2 + k1);
      let v4: f32 = X0[v3];
      let v5: f32 = (v4 * 2.0f);
      let v6: f32 = (v0 + v5);
      v0 = v6;
    }
    workgroupBarrier();
    shared0[i32(thread)] = v0;
    workgroupBarrier();
    for (var h: i32 = 0; h < 8; h += 1) {
      let apart: i32 = 128 >> u32(h);
      if (i32(thread) < apart) {
        let v7: f32 = shared0[i32(thread)];
        let v8: f32 = shared0[i32(thread) + apart];
        let v9: f32 = (v7 + v8);
        shared0[i32(thread)] = v9;
      }
      workgroupBarrier();
    }
    let v10: f32 = shared0[0];
    for (var j: i32 = i32(thread); j < 1; j += 256) {
      Y0[row] = v10;
    }
  }
}
