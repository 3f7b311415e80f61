@group(0) @binding(0) var<storage, read_write> X0: array<f32>;
@group(0) @binding(1) var<storage, read_write> X1: array<f32>;
@group(0) @binding(2) var<storage, read_write> Y0: array<f32>;
@group(0) @binding(3) var<uniform> P: array<vec4<i32>, 2>;
var<workgroup> shared0: array<f32, 256>;
var<workgroup> shared1: array<f32, 256>;
@compute @workgroup_size(64)
fn main_kernel(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) grid: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
  let p0: i32 = P[0].x;
  let p1: i32 = P[0].y;
  let p2: i32 = P[0].z;
  let p3: i32 = P[0].w;
  let p4: i32 = P[1].x;
  let p5: i32 = P[1].y;
  let p6: i32 = P[1].z;
  let p7: i32 = P[1].w;
  let z: i32 = i32(group.z);
  let m0: i32 = i32(group.y) * 16;
  let n0: i32 = i32(group.x) * 16;
  let r0: i32 = (i32(thread) / 8) * 2;
  let c0: i32 = (i32(thread) % 8) * 2;
  let row: i32 = m0 + r0;
  let column: i32 = n0 + c0;
  var v0: f32 = 0.0f;
  var v1: f32 = 0.0f;
  var v2: f32 = 0.0f;
  var v3: f32 = 0.0f;
  for (var k0: i32 = 0; k0 < p0; k0 += 16) {
    for (var s: i32 = i32(thread); s < 256; s += 64) {
      let gk: i32 = k0 + s % 16;
      let gm: i32 = m0 + s / 16;
      let v4: i32 = select(gm, 4, (gm > 4));
      let v5: i32 = select(v4, 0, (v4 < 0));
      let v6: i32 = (v5 * p0);
      let v7: i32 = select(gk, p1, (gk > p1));
      let v8: i32 = select(v7, 0, (v7 < 0));
      let v9: i32 = (v6 + v8);
      let v10: f32 = X0[v9];
      shared0[(s % 16) * 16 + s / 16] = select(0.0f, v10, (gk < p0 && gm < p2));
    }
    for (var s: i32 = i32(thread); s < 256; s += 64) {
      let gk: i32 = k0 + s / 16;
      let gn: i32 = n0 + s % 16;
      let v11: i32 = select(gk, p1, (gk > p1));
      let v12: i32 = select(v11, 0, (v11 < 0));
      let v13: i32 = (v12 / p3);
      let v14: i32 = (v13 * p4);
      let v15: i32 = select(gn, p5, (gn > p5));
      let v16: i32 = select(v15, 0, (v15 < 0));
      let v17: i32 = (v16 / p6);
      let v18: i32 = (v12 / 3);
      let v19: i32 = (v18 % 3);
      let v20: i32 = (v17 + v19);
      let v21: i32 = (v20 + (-1));
      let v22: i32 = select(v21, p7, (v21 > p7));
      let v23: i32 = select(v22, 0, (v22 < 0));
      let v24: i32 = (v23 * p6);
      let v25: i32 = (v14 + v24);
      let v26: i32 = (v16 % p6);
      let v27: i32 = (v12 % 3);
      let v28: i32 = (v26 + v27);
      let v29: i32 = (v28 + (-1));
      let v30: i32 = select(v29, p7, (v29 > p7));
      let v31: i32 = select(v30, 0, (v30 < 0));
      let v32: i32 = (v25 + v31);
      let v33: f32 = X1[v32];
      let v34: f32 = select(0.0f, v33, (v21 >= 0 && v21 < p6 && v29 >= 0 && v29 < p6));
      shared1[s] = select(0.0f, v34, (gk < p0 && gn < p4));
    }
    workgroupBarrier();
    for (var k: i32 = 0; k < 16; k += 1) {
      let v35: f32 = shared0[k * 16 + r0 + 0];
      let v36: f32 = shared0[k * 16 + r0 + 1];
      let v37: f32 = shared1[k * 16 + c0 + 0];
      let v38: f32 = shared1[k * 16 + c0 + 1];
      v0 = v0 + v35 * v37;
      v1 = v1 + v35 * v38;
      v2 = v2 + v36 * v37;
      v3 = v3 + v36 * v38;
    }
    workgroupBarrier();
  }
  {
    let gm: i32 = row + 0;
    let gn: i32 = column + 0;
    if (gm < p2 && gn < p4) {
      let v39: f32 = select(0.0f, v0, (v0 > 0.0f));
      let v40: u32 = (bitcast<u32>(v0) & 0x7fffffffu);
      let v41: bool = (v40 > 0x7f800000u);
      let v42: f32 = select(v39, v0, v41);
      let v43: i32 = (gm * p4);
      let v44: i32 = (v43 + gn);
      Y0[v44] = v42;
    }
  }
  {
    let gm: i32 = row + 0;
    let gn: i32 = column + 1;
    if (gm < p2 && gn < p4) {
      let v45: f32 = select(0.0f, v1, (v1 > 0.0f));
      let v46: u32 = (bitcast<u32>(v1) & 0x7fffffffu);
      let v47: bool = (v46 > 0x7f800000u);
      let v48: f32 = select(v45, v1, v47);
      let v49: i32 = (gm * p4);
      let v50: i32 = (v49 + gn);
      Y0[v50] = v48;
    }
  }
  {
    let gm: i32 = row + 1;
    let gn: i32 = column + 0;
    if (gm < p2 && gn < p4) {
      let v51: f32 = select(0.0f, v2, (v2 > 0.0f));
      let v52: u32 = (bitcast<u32>(v2) & 0x7fffffffu);
      let v53: bool = (v52 > 0x7f800000u);
      let v54: f32 = select(v51, v2, v53);
      let v55: i32 = (gm * p4);
      let v56: i32 = (v55 + gn);
      Y0[v56] = v54;
    }
  }
  {
    let gm: i32 = row + 1;
    let gn: i32 = column + 1;
    if (gm < p2 && gn < p4) {
      let v57: f32 = select(0.0f, v3, (v3 > 0.0f));
      let v58: u32 = (bitcast<u32>(v3) & 0x7fffffffu);
      let v59: bool = (v58 > 0x7f800000u);
      let v60: f32 = select(v57, v3, v59);
      let v61: i32 = (gm * p4);
      let v62: i32 = (v61 + gn);
      Y0[v62] = v60;
    }
  }
}
