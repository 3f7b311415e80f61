@group(0) @binding(0) var<storage, read_write> X0: array<f32>;
@group(0) @binding(1) var<storage, read_write> X1: array<f32>;
@group(0) @binding(2) var<storage, read_write> Y0: array<vec4<f32>>;
@group(0) @binding(3) var<uniform> P: array<vec4<i32>, 2>;
var<workgroup> shared0: array<vec4<f32>, 64>;
var<workgroup> shared1: array<vec4<f32>, 128>;
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
  let n0: i32 = i32(group.x) * 32;
  let r0: i32 = (i32(thread) / 8) * 2;
  let c0: i32 = (i32(thread) % 8) * 4;
  let row: i32 = m0 + r0;
  let column: i32 = n0 + c0;
  var total0: vec4<f32> = vec4<f32>(0.0f, 0.0f, 0.0f, 0.0f);
  var total1: vec4<f32> = vec4<f32>(0.0f, 0.0f, 0.0f, 0.0f);
  for (var k0: i32 = 0; k0 < p0; k0 += 16) {
    for (var s: i32 = i32(thread); s < 64; s += 64) {
      let line: i32 = s / 4;
      let place: i32 = s % 4;
      {
        let gk0: i32 = k0 + place * 4;
        let gm0: i32 = m0 + line;
        var part2: f32 = 0.0f;
        var part3: f32 = 0.0f;
        var part4: f32 = 0.0f;
        var part5: f32 = 0.0f;
        {
          let gm: i32 = gm0;
          let v6: i32 = select(gm, 4, (gm > 4));
          let v7: i32 = select(v6, 0, (v6 < 0));
          let v8: i32 = (v7 * p0);
          {
            let gk: i32 = gk0;
            let v9: i32 = select(gk, p1, (gk > p1));
            let v10: i32 = select(v9, 0, (v9 < 0));
            let v11: i32 = (v8 + v10);
            let v12: f32 = X0[v11];
            part2 = select(0.0f, v12, (gk < p0 && gm < p2));
          }
          {
            let gk: i32 = gk0 + 1;
            let v13: i32 = select(gk, p1, (gk > p1));
            let v14: i32 = select(v13, 0, (v13 < 0));
            let v15: i32 = (v8 + v14);
            let v16: f32 = X0[v15];
            part3 = select(0.0f, v16, (gk < p0 && gm < p2));
          }
          {
            let gk: i32 = gk0 + 2;
            let v17: i32 = select(gk, p1, (gk > p1));
            let v18: i32 = select(v17, 0, (v17 < 0));
            let v19: i32 = (v8 + v18);
            let v20: f32 = X0[v19];
            part4 = select(0.0f, v20, (gk < p0 && gm < p2));
          }
          {
            let gk: i32 = gk0 + 3;
            let v21: i32 = select(gk, p1, (gk > p1));
            let v22: i32 = select(v21, 0, (v21 < 0));
            let v23: i32 = (v8 + v22);
            let v24: f32 = X0[v23];
            part5 = select(0.0f, v24, (gk < p0 && gm < p2));
          }
        }
        shared0[line * 4 + place] = vec4<f32>(part2, part3, part4, part5);
      }
    }
    for (var s: i32 = i32(thread); s < 128; s += 64) {
      let line: i32 = s / 8;
      let place: i32 = s % 8;
      {
        let gk0: i32 = k0 + line;
        let gn0: i32 = n0 + place * 4;
        var part25: f32 = 0.0f;
        var part26: f32 = 0.0f;
        var part27: f32 = 0.0f;
        var part28: f32 = 0.0f;
        {
          let gk: i32 = gk0;
          let v29: i32 = select(gk, p1, (gk > p1));
          let v30: i32 = select(v29, 0, (v29 < 0));
          let v31: i32 = (v30 / p3);
          let v32: i32 = (v31 * p4);
          let v36: i32 = (v30 / 3);
          let v37: i32 = (v36 % 3);
          let v45: i32 = (v30 % 3);
          {
            let gn: i32 = gn0;
            let v33: i32 = select(gn, p5, (gn > p5));
            let v34: i32 = select(v33, 0, (v33 < 0));
            let v35: i32 = (v34 / p6);
            let v38: i32 = (v35 + v37);
            let v39: i32 = (v38 + (-1));
            let v40: i32 = select(v39, p7, (v39 > p7));
            let v41: i32 = select(v40, 0, (v40 < 0));
            let v42: i32 = (v41 * p6);
            let v43: i32 = (v32 + v42);
            let v44: i32 = (v34 % p6);
            let v46: i32 = (v44 + v45);
            let v47: i32 = (v46 + (-1));
            let v48: i32 = select(v47, p7, (v47 > p7));
            let v49: i32 = select(v48, 0, (v48 < 0));
            let v50: i32 = (v43 + v49);
            let v51: f32 = X1[v50];
            let v52: f32 = select(0.0f, v51, (v39 >= 0 && v39 < p6 && v47 >= 0 && v47 < p6));
            part25 = select(0.0f, v52, (gk < p0 && gn < p4));
          }
          {
            let gn: i32 = gn0 + 1;
            let v53: i32 = select(gn, p5, (gn > p5));
            let v54: i32 = select(v53, 0, (v53 < 0));
            let v55: i32 = (v54 / p6);
            let v56: i32 = (v55 + v37);
            let v57: i32 = (v56 + (-1));
            let v58: i32 = select(v57, p7, (v57 > p7));
            let v59: i32 = select(v58, 0, (v58 < 0));
            let v60: i32 = (v59 * p6);
            let v61: i32 = (v32 + v60);
            let v62: i32 = (v54 % p6);
            let v63: i32 = (v62 + v45);
            let v64: i32 = (v63 + (-1));
            let v65: i32 = select(v64, p7, (v64 > p7));
            let v66: i32 = select(v65, 0, (v65 < 0));
            let v67: i32 = (v61 + v66);
            let v68: f32 = X1[v67];
            let v69: f32 = select(0.0f, v68, (v57 >= 0 && v57 < p6 && v64 >= 0 && v64 < p6));
            part26 = select(0.0f, v69, (gk < p0 && gn < p4));
          }
          {
            let gn: i32 = gn0 + 2;
            let v70: i32 = select(gn, p5, (gn > p5));
            let v71: i32 = select(v70, 0, (v70 < 0));
            let v72: i32 = (v71 / p6);
            let v73: i32 = (v72 + v37);
            let v74: i32 = (v73 + (-1));
            let v75: i32 = select(v74, p7, (v74 > p7));
            let v76: i32 = select(v75, 0, (v75 < 0));
            let v77: i32 = (v76 * p6);
            let v78: i32 = (v32 + v77);
            let v79: i32 = (v71 % p6);
            let v80: i32 = (v79 + v45);
            let v81: i32 = (v80 + (-1));
            let v82: i32 = select(v81, p7, (v81 > p7));
            let v83: i32 = select(v82, 0, (v82 < 0));
            let v84: i32 = (v78 + v83);
            let v85: f32 = X1[v84];
            let v86: f32 = select(0.0f, v85, (v74 >= 0 && v74 < p6 && v81 >= 0 && v81 < p6));
            part27 = select(0.0f, v86, (gk < p0 && gn < p4));
          }
          {
            let gn: i32 = gn0 + 3;
            let v87: i32 = select(gn, p5, (gn > p5));
            let v88: i32 = select(v87, 0, (v87 < 0));
            let v89: i32 = (v88 / p6);
            let v90: i32 = (v89 + v37);
            let v91: i32 = (v90 + (-1));
            let v92: i32 = select(v91, p7, (v91 > p7));
            let v93: i32 = select(v92, 0, (v92 < 0));
            let v94: i32 = (v93 * p6);
            let v95: i32 = (v32 + v94);
            let v96: i32 = (v88 % p6);
            let v97: i32 = (v96 + v45);
            let v98: i32 = (v97 + (-1));
            let v99: i32 = select(v98, p7, (v98 > p7));
            let v100: i32 = select(v99, 0, (v99 < 0));
            let v101: i32 = (v95 + v100);
            let v102: f32 = X1[v101];
            let v103: f32 = select(0.0f, v102, (v91 >= 0 && v91 < p6 && v98 >= 0 && v98 < p6));
            part28 = select(0.0f, v103, (gk < p0 && gn < p4));
          }
        }
        shared1[line * 8 + place] = vec4<f32>(part25, part26, part27, part28);
      }
    }
    workgroupBarrier();
    for (var k: i32 = 0; k < 4; k += 1) {
      let y104: vec4<f32> = shared1[(k * 4 + 0) * 8 + c0 / 4 + 0];
      let y105: vec4<f32> = shared1[(k * 4 + 1) * 8 + c0 / 4 + 0];
      let y106: vec4<f32> = shared1[(k * 4 + 2) * 8 + c0 / 4 + 0];
      let y107: vec4<f32> = shared1[(k * 4 + 3) * 8 + c0 / 4 + 0];
      let x108: vec4<f32> = shared0[(r0 + 0) * 4 + k];
      total0 += x108.x * y104;
      total0 += x108.y * y105;
      total0 += x108.z * y106;
      total0 += x108.w * y107;
      let x109: vec4<f32> = shared0[(r0 + 1) * 4 + k];
      total1 += x109.x * y104;
      total1 += x109.y * y105;
      total1 += x109.z * y106;
      total1 += x109.w * y107;
    }
    workgroupBarrier();
  }
  for (var r: i32 = 0; r < 2; r += 1) {
    let sum110: vec4<f32> = select(total1, total0, (r == 0));
    let gm: i32 = row + r;
    if (gm < p2) {
      let v127: i32 = (gm * p4);
      if (column + 0 < p4) {
        let four: i32 = (column + 0) / 4;
        let v111: f32 = select(0.0f, sum110.x, (sum110.x > 0.0f));
        let v112: u32 = (bitcast<u32>(sum110.x) & 0x7fffffffu);
        let v113: bool = (v112 > 0x7f800000u);
        let v114: f32 = select(v111, sum110.x, v113);
        let v115: f32 = select(0.0f, sum110.y, (sum110.y > 0.0f));
        let v116: u32 = (bitcast<u32>(sum110.y) & 0x7fffffffu);
        let v117: bool = (v116 > 0x7f800000u);
        let v118: f32 = select(v115, sum110.y, v117);
        let v119: f32 = select(0.0f, sum110.z, (sum110.z > 0.0f));
        let v120: u32 = (bitcast<u32>(sum110.z) & 0x7fffffffu);
        let v121: bool = (v120 > 0x7f800000u);
        let v122: f32 = select(v119, sum110.z, v121);
        let v123: f32 = select(0.0f, sum110.w, (sum110.w > 0.0f));
        let v124: u32 = (bitcast<u32>(sum110.w) & 0x7fffffffu);
        let v125: bool = (v124 > 0x7f800000u);
        let v126: f32 = select(v123, sum110.w, v125);
        let v128: i32 = (four * 4);
        let v129: i32 = (v127 + v128);
        Y0[(v129 >> 2u)] = vec4<f32>(v114, v118, v122, v126);
      }
    }
  }
}
