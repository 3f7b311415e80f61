@group(0) @binding(0) var<storage, read_write> X0: array<f32>;
@group(0) @binding(1) var<storage, read_write> Y0: array<f32>;
@group(0) @binding(2) var<uniform> P: array<vec4<i32>, 1>;
var<workgroup> shared0: array<f32, 32>;
@compute @workgroup_size(32)
fn main_kernel(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) grid: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
  let zero = thread >> 31u;
  let p0: i32 = P[0].x;
  let p1: i32 = P[0].y;
  let row: i32 = (i32(group.y) * i32(grid.x) + i32(group.x));
  if (row < p1) {
    let v0: i32 = (row * p0);
    var v3: f32 = bitcast<f32>(0xff800000u | zero);
    for (var k4: i32 = i32(thread); k4 < p0; k4 += 32) {
      let v5: i32 = (v0 + k4);
      let v6: f32 = X0[v5];
      let v7: f32 = select(v6, v3, (v3 > v6));
      let v8: u32 = (bitcast<u32>(v3) & 0x7fffffffu);
      let v9: bool = (v8 > 0x7f800000u);
      let v10: f32 = select(v7, v3, v9);
      v3 = v10;
    }
    workgroupBarrier();
    shared0[i32(thread)] = v3;
    workgroupBarrier();
    for (var h: i32 = 0; h < 5; h += 1) {
      let apart: i32 = 16 >> u32(h);
      if (i32(thread) < apart) {
        let v11: f32 = shared0[i32(thread)];
        let v12: f32 = shared0[i32(thread) + apart];
        let v13: f32 = select(v12, v11, (v11 > v12));
        let v14: u32 = (bitcast<u32>(v11) & 0x7fffffffu);
        let v15: bool = (v14 > 0x7f800000u);
        let v16: f32 = select(v13, v11, v15);
        shared0[i32(thread)] = v16;
      }
      workgroupBarrier();
    }
    let v17: f32 = shared0[0];
    var v20: f32 = 0.0f;
    for (var k21: i32 = i32(thread); k21 < p0; k21 += 32) {
      let v22: i32 = (v0 + k21);
      let v23: f32 = X0[v22];
      let v24: f32 = (v23 - v17);
      let v25: f32 = exp(v24);
      let v26: f32 = (v20 + v25);
      v20 = v26;
    }
    workgroupBarrier();
    shared0[i32(thread)] = v20;
    workgroupBarrier();
    for (var h: i32 = 0; h < 5; h += 1) {
      let apart: i32 = 16 >> u32(h);
      if (i32(thread) < apart) {
        let v27: f32 = shared0[i32(thread)];
        let v28: f32 = shared0[i32(thread) + apart];
        let v29: f32 = (v27 + v28);
        shared0[i32(thread)] = v29;
      }
      workgroupBarrier();
    }
    let v30: f32 = shared0[0];
    for (var j: i32 = i32(thread); j < p0; j += 32) {
      let v1: i32 = (v0 + j);
      let v2: f32 = X0[v1];
      let v18: f32 = (v2 - v17);
      let v19: f32 = exp(v18);
      let v31: f32 = (v19 / v30);
      Y0[v1] = v31;
    }
  }
}
