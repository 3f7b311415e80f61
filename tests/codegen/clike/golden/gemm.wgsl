@group(0) @binding(0) var<storage, read_write> X0: array<f32>;
@group(0) @binding(1) var<storage, read_write> X1: array<f32>;
@group(0) @binding(2) var<storage, read_write> X2: array<f32>;
@group(0) @binding(3) var<storage, read_write> Y0: array<f32>;
@group(0) @binding(4) var<uniform> P: array<vec4<i32>, 2>;
var<workgroup> shared0: array<f32, 1024>;
var<workgroup> shared1: array<f32, 1024>;
@compute @workgroup_size(256)
fn main_kernel(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) grid: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
  let p0: i32 = P[0].x;
  let p1: i32 = P[0].y;
  let p2: i32 = P[0].z;
  let p3: i32 = P[0].w;
  let p4: i32 = P[1].x;
  let p5: i32 = P[1].y;
  let z: i32 = i32(group.z);
  let m0: i32 = i32(group.y) * 64;
  let n0: i32 = i32(group.x) * 64;
  let r0: i32 = (i32(thread) / 16) * 4;
  let c0: i32 = (i32(thread) % 16) * 4;
  let row: i32 = m0 + r0;
  let column: i32 = n0 + c0;
  var v0: f32 = 0.0f;
  var v1: f32 = 0.0f;
  var v2: f32 = 0.0f;
  var v3: f32 = 0.0f;
  var v4: f32 = 0.0f;
  var v5: f32 = 0.0f;
  var v6: f32 = 0.0f;
  var v7: f32 = 0.0f;
  var v8: f32 = 0.0f;
  var v9: f32 = 0.0f;
  var v10: f32 = 0.0f;
  var v11: f32 = 0.0f;
  var v12: f32 = 0.0f;
  var v13: f32 = 0.0f;
  var v14: f32 = 0.0f;
  var v15: f32 = 0.0f;
  for (var k0: i32 = 0; k0 < p1; k0 += 16) {
    for (var s: i32 = i32(thread); s < 1024; s += 256) {
      let gk: i32 = k0 + s % 16;
      let gm: i32 = m0 + s / 16;
      let v16: i32 = select(gm, p0, (gm > p0));
      let v17: i32 = select(v16, 0, (v16 < 0));
      let v18: i32 = (v17 * p1);
      let v19: i32 = select(gk, p2, (gk > p2));
      let v20: i32 = select(v19, 0, (v19 < 0));
      let v21: i32 = (v18 + v20);
      let v22: f32 = X0[v21];
      shared0[(s % 16) * 64 + s / 16] = select(0.0f, v22, (gk < p1 && gm < p3));
    }
    for (var s: i32 = i32(thread); s < 1024; s += 256) {
      let gk: i32 = k0 + s / 64;
      let gn: i32 = n0 + s % 64;
      let v23: i32 = select(gk, p2, (gk > p2));
      let v24: i32 = select(v23, 0, (v23 < 0));
      let v25: i32 = (v24 * p4);
      let v26: i32 = select(gn, p5, (gn > p5));
      let v27: i32 = select(v26, 0, (v26 < 0));
      let v28: i32 = (v25 + v27);
      let v29: f32 = X1[v28];
      shared1[s] = select(0.0f, v29, (gk < p1 && gn < p4));
    }
    workgroupBarrier();
    for (var k: i32 = 0; k < 16; k += 1) {
      let v30: f32 = shared0[k * 64 + r0 + 0];
      let v31: f32 = shared0[k * 64 + r0 + 1];
      let v32: f32 = shared0[k * 64 + r0 + 2];
      let v33: f32 = shared0[k * 64 + r0 + 3];
      let v34: f32 = shared1[k * 64 + c0 + 0];
      let v35: f32 = shared1[k * 64 + c0 + 1];
      let v36: f32 = shared1[k * 64 + c0 + 2];
      let v37: f32 = shared1[k * 64 + c0 + 3];
      v0 = v0 + v30 * v34;
      v1 = v1 + v30 * v35;
      v2 = v2 + v30 * v36;
      v3 = v3 + v30 * v37;
      v4 = v4 + v31 * v34;
      v5 = v5 + v31 * v35;
      v6 = v6 + v31 * v36;
      v7 = v7 + v31 * v37;
      v8 = v8 + v32 * v34;
      v9 = v9 + v32 * v35;
      v10 = v10 + v32 * v36;
      v11 = v11 + v32 * v37;
      v12 = v12 + v33 * v34;
      v13 = v13 + v33 * v35;
      v14 = v14 + v33 * v36;
      v15 = v15 + v33 * v37;
    }
    workgroupBarrier();
  }
  {
    let gm: i32 = row + 0;
    let gn: i32 = column + 0;
    if (gm < p3 && gn < p4) {
      let v38: f32 = X2[gn];
      let v39: f32 = (v0 + v38);
      let v40: i32 = (gm * p4);
      let v41: i32 = (v40 + gn);
      Y0[v41] = v39;
    }
  }
  {
    let gm: i32 = row + 0;
    let gn: i32 = column + 1;
    if (gm < p3 && gn < p4) {
      let v42: f32 = X2[gn];
      let v43: f32 = (v1 + v42);
      let v44: i32 = (gm * p4);
      let v45: i32 = (v44 + gn);
      Y0[v45] = v43;
    }
  }
  {
    let gm: i32 = row + 0;
    let gn: i32 = column + 2;
    if (gm < p3 && gn < p4) {
      let v46: f32 = X2[gn];
      let v47: f32 = (v2 + v46);
      let v48: i32 = (gm * p4);
      let v49: i32 = (v48 + gn);
      Y0[v49] = v47;
    }
  }
  {
    let gm: i32 = row + 0;
    let gn: i32 = column + 3;
    if (gm < p3 && gn < p4) {
      let v50: f32 = X2[gn];
      let v51: f32 = (v3 + v50);
      let v52: i32 = (gm * p4);
      let v53: i32 = (v52 + gn);
      Y0[v53] = v51;
    }
  }
  {
    let gm: i32 = row + 1;
    let gn: i32 = column + 0;
    if (gm < p3 && gn < p4) {
      let v54: f32 = X2[gn];
      let v55: f32 = (v4 + v54);
      let v56: i32 = (gm * p4);
      let v57: i32 = (v56 + gn);
      Y0[v57] = v55;
    }
  }
  {
    let gm: i32 = row + 1;
    let gn: i32 = column + 1;
    if (gm < p3 && gn < p4) {
      let v58: f32 = X2[gn];
      let v59: f32 = (v5 + v58);
      let v60: i32 = (gm * p4);
      let v61: i32 = (v60 + gn);
      Y0[v61] = v59;
    }
  }
  {
    let gm: i32 = row + 1;
    let gn: i32 = column + 2;
    if (gm < p3 && gn < p4) {
      let v62: f32 = X2[gn];
      let v63: f32 = (v6 + v62);
      let v64: i32 = (gm * p4);
      let v65: i32 = (v64 + gn);
      Y0[v65] = v63;
    }
  }
  {
    let gm: i32 = row + 1;
    let gn: i32 = column + 3;
    if (gm < p3 && gn < p4) {
      let v66: f32 = X2[gn];
      let v67: f32 = (v7 + v66);
      let v68: i32 = (gm * p4);
      let v69: i32 = (v68 + gn);
      Y0[v69] = v67;
    }
  }
  {
    let gm: i32 = row + 2;
    let gn: i32 = column + 0;
    if (gm < p3 && gn < p4) {
      let v70: f32 = X2[gn];
      let v71: f32 = (v8 + v70);
      let v72: i32 = (gm * p4);
      let v73: i32 = (v72 + gn);
      Y0[v73] = v71;
    }
  }
  {
    let gm: i32 = row + 2;
    let gn: i32 = column + 1;
    if (gm < p3 && gn < p4) {
      let v74: f32 = X2[gn];
      let v75: f32 = (v9 + v74);
      let v76: i32 = (gm * p4);
      let v77: i32 = (v76 + gn);
      Y0[v77] = v75;
    }
  }
  {
    let gm: i32 = row + 2;
    let gn: i32 = column + 2;
    if (gm < p3 && gn < p4) {
      let v78: f32 = X2[gn];
      let v79: f32 = (v10 + v78);
      let v80: i32 = (gm * p4);
      let v81: i32 = (v80 + gn);
      Y0[v81] = v79;
    }
  }
  {
    let gm: i32 = row + 2;
    let gn: i32 = column + 3;
    if (gm < p3 && gn < p4) {
      let v82: f32 = X2[gn];
      let v83: f32 = (v11 + v82);
      let v84: i32 = (gm * p4);
      let v85: i32 = (v84 + gn);
      Y0[v85] = v83;
    }
  }
  {
    let gm: i32 = row + 3;
    let gn: i32 = column + 0;
    if (gm < p3 && gn < p4) {
      let v86: f32 = X2[gn];
      let v87: f32 = (v12 + v86);
      let v88: i32 = (gm * p4);
      let v89: i32 = (v88 + gn);
      Y0[v89] = v87;
    }
  }
  {
    let gm: i32 = row + 3;
    let gn: i32 = column + 1;
    if (gm < p3 && gn < p4) {
      let v90: f32 = X2[gn];
      let v91: f32 = (v13 + v90);
      let v92: i32 = (gm * p4);
      let v93: i32 = (v92 + gn);
      Y0[v93] = v91;
    }
  }
  {
    let gm: i32 = row + 3;
    let gn: i32 = column + 2;
    if (gm < p3 && gn < p4) {
      let v94: f32 = X2[gn];
      let v95: f32 = (v14 + v94);
      let v96: i32 = (gm * p4);
      let v97: i32 = (v96 + gn);
      Y0[v97] = v95;
    }
  }
  {
    let gm: i32 = row + 3;
    let gn: i32 = column + 3;
    if (gm < p3 && gn < p4) {
      let v98: f32 = X2[gn];
      let v99: f32 = (v15 + v98);
      let v100: i32 = (gm * p4);
      let v101: i32 = (v100 + gn);
      Y0[v101] = v99;
    }
  }
}
