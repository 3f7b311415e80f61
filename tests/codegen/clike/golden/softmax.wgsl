@group(0) @binding(0) var<storage, read_write> X0: array<f32>;
@group(0) @binding(1) var<storage, read_write> Y0: array<f32>;
@group(0) @binding(2) var<uniform> P: array<vec4<i32>, 1>;
var<workgroup> shared0: array<f32, 32>;
var<workgroup> shared1: array<f32, 128>;
@compute @workgroup_size(32)
fn main_kernel(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) grid: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
  let zero = thread >> 31u;
  let p0: i32 = P[0].x;
  let row: i32 = (i32(group.y) * i32(grid.x) + i32(group.x));
  {
    var v0: f32 = bitcast<f32>(0xff800000u | zero);
    let v2: i32 = (row * p0);
    for (var k1: i32 = i32(thread); k1 < p0; k1 += 32) {
      let v3: i32 = (v2 + k1);
      let v4: f32 = X0[v3];
      let v5: f32 = select(v4, v0, (v0 > v4));
      let v6: u32 = (bitcast<u32>(v0) & 0x7fffffffu);
      let v7: bool = (v6 > 0x7f800000u);
      let v8: f32 = select(v5, v0, v7);
      v0 = v8;
    }
    workgroupBarrier();
    shared0[i32(thread)] = v0;
    workgroupBarrier();
    for (var h: i32 = 0; h < 5; h += 1) {
      let apart: i32 = 16 >> u32(h);
      if (i32(thread) < apart) {
        let v9: f32 = shared0[i32(thread)];
        let v10: f32 = shared0[i32(thread) + apart];
        let v11: f32 = select(v10, v9, (v9 > v10));
        let v12: u32 = (bitcast<u32>(v9) & 0x7fffffffu);
        let v13: bool = (v12 > 0x7f800000u);
        let v14: f32 = select(v11, v9, v13);
        shared0[i32(thread)] = v14;
      }
      workgroupBarrier();
    }
    let v15: f32 = shared0[0];
    var v16: f32 = 0.0f;
    for (var k17: i32 = i32(thread); k17 < p0; k17 += 32) {
      let v18: i32 = (v2 + k17);
      let v19: f32 = X0[v18];
      let v20: f32 = (v19 - v15);
      let v21: f32 = exp(v20);
      shared1[k17] = v21;
      let v22: f32 = (v16 + v21);
      v16 = v22;
    }
    workgroupBarrier();
    shared0[i32(thread)] = v16;
    workgroupBarrier();
    for (var h: i32 = 0; h < 5; h += 1) {
      let apart: i32 = 16 >> u32(h);
      if (i32(thread) < apart) {
        let v23: f32 = shared0[i32(thread)];
        let v24: f32 = shared0[i32(thread) + apart];
        let v25: f32 = (v23 + v24);
        shared0[i32(thread)] = v25;
      }
      workgroupBarrier();
    }
    let v26: f32 = shared0[0];
    for (var j: i32 = i32(thread); j < p0; j += 32) {
      let v27: f32 = shared1[j];
      let v28: f32 = (v27 / v26);
      let v29: i32 = (v2 + j);
      Y0[v29] = v28;
    }
  }
}
