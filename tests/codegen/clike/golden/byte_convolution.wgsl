@group(0) @binding(0) var<storage, read_write> X0: array<u32>;
@group(0) @binding(1) var<storage, read_write> X1: array<u32>;
@group(0) @binding(2) var<storage, read_write> X2: array<u32>;
@group(0) @binding(3) var<storage, read_write> X3: array<i32>;
@group(0) @binding(4) var<storage, read_write> Y0: array<vec4<i32>>;
@group(0) @binding(5) var<uniform> P: array<vec4<i32>, 3>;
var<workgroup> shared0: array<u32, 256>;
var<workgroup> shared1: array<u32, 512>;
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
  let p8: i32 = P[2].x;
  let p9: i32 = P[2].y;
  let z: i32 = i32(group.z);
  let m0: i32 = i32(group.y) * 16;
  let n0: i32 = i32(group.x) * 32;
  let r0: i32 = (i32(thread) / 8) * 2;
  let c0: i32 = (i32(thread) % 8) * 4;
  let row: i32 = m0 + r0;
  let column: i32 = n0 + c0;
  var total0: i32 = 0;
  var total1: i32 = 0;
  var total2: i32 = 0;
  var total3: i32 = 0;
  var total4: i32 = 0;
  var total5: i32 = 0;
  var total6: i32 = 0;
  var total7: i32 = 0;
  let v61: u32 = (X2[0 >> 2u] >> (u32((0 & 3) * 8)));
  let v62: u32 = (v61 & 255u);
  for (var k0: i32 = 0; k0 < p9; k0 += 16) {
    for (var s: i32 = i32(thread); s < 256; s += 64) {
      let line: i32 = s / 16;
      let place: i32 = s % 16;
      let gk0: i32 = (k0 + place) * 4;
      let gm0: i32 = m0 + line;
      let gm: i32 = gm0;
      var word8: u32 = 0u;
      let v9: i32 = select(gm, p0, (gm > p0));
      let v10: i32 = select(v9, 0, (v9 < 0));
      let v11: i32 = (v10 * p1);
      {
        let gk: i32 = gk0 + 0;
        let v12: i32 = select(gk, p2, (gk > p2));
        let v13: i32 = select(v12, 0, (v12 < 0));
        let v14: i32 = (v11 + v13);
        let v15: u32 = (X0[v14 >> 2u] >> (u32((v14 & 3) * 8)));
        let v16: i32 = bitcast<i32>(v15);
        let v17: i32 = ((v16 << 24u) >> 24u);
        word8 = word8 | select(0u, ((u32(v17) & 255u) << 0u), (gk < p1 && gm < p3));
      }
      {
        let gk: i32 = gk0 + 1;
        let v18: i32 = select(gk, p2, (gk > p2));
        let v19: i32 = select(v18, 0, (v18 < 0));
        let v20: i32 = (v11 + v19);
        let v21: u32 = (X0[v20 >> 2u] >> (u32((v20 & 3) * 8)));
        let v22: i32 = bitcast<i32>(v21);
        let v23: i32 = ((v22 << 24u) >> 24u);
        word8 = word8 | select(0u, ((u32(v23) & 255u) << 8u), (gk < p1 && gm < p3));
      }
      {
        let gk: i32 = gk0 + 2;
        let v24: i32 = select(gk, p2, (gk > p2));
        let v25: i32 = select(v24, 0, (v24 < 0));
        let v26: i32 = (v11 + v25);
        let v27: u32 = (X0[v26 >> 2u] >> (u32((v26 & 3) * 8)));
        let v28: i32 = bitcast<i32>(v27);
        let v29: i32 = ((v28 << 24u) >> 24u);
        word8 = word8 | select(0u, ((u32(v29) & 255u) << 16u), (gk < p1 && gm < p3));
      }
      {
        let gk: i32 = gk0 + 3;
        let v30: i32 = select(gk, p2, (gk > p2));
        let v31: i32 = select(v30, 0, (v30 < 0));
        let v32: i32 = (v11 + v31);
        let v33: u32 = (X0[v32 >> 2u] >> (u32((v32 & 3) * 8)));
        let v34: i32 = bitcast<i32>(v33);
        let v35: i32 = ((v34 << 24u) >> 24u);
        word8 = word8 | select(0u, ((u32(v35) & 255u) << 24u), (gk < p1 && gm < p3));
      }
      shared0[(line) * 16 + place] = word8;
    }
    for (var s: i32 = i32(thread); s < 512; s += 64) {
      let line: i32 = s % 32;
      let place: i32 = s / 32;
      let gk0: i32 = (k0 + place) * 4;
      let gn0: i32 = n0 + line;
      let gn: i32 = gn0;
      var word36: u32 = 0u;
      let v41: i32 = select(gn, p6, (gn > p6));
      let v42: i32 = select(v41, 0, (v41 < 0));
      let v43: i32 = (v42 / p7);
      let v52: i32 = (v42 % p7);
      {
        let gk: i32 = gk0 + 0;
        let v37: i32 = select(gk, p2, (gk > p2));
        let v38: i32 = select(v37, 0, (v37 < 0));
        let v39: i32 = (v38 / p4);
        let v40: i32 = (v39 * p5);
        let v44: i32 = (v38 / 3);
        let v45: i32 = (v44 % 3);
        let v46: i32 = (v43 + v45);
        let v47: i32 = (v46 + (-1));
        let v48: i32 = select(v47, p8, (v47 > p8));
        let v49: i32 = select(v48, 0, (v48 < 0));
        let v50: i32 = (v49 * p7);
        let v51: i32 = (v40 + v50);
        let v53: i32 = (v38 % 3);
        let v54: i32 = (v52 + v53);
        let v55: i32 = (v54 + (-1));
        let v56: i32 = select(v55, p8, (v55 > p8));
        let v57: i32 = select(v56, 0, (v56 < 0));
        let v58: i32 = (v51 + v57);
        let v59: u32 = (X1[v58 >> 2u] >> (u32((v58 & 3) * 8)));
        let v60: u32 = (v59 & 255u);
        let v63: u32 = select(v62, v60, (v47 >= 0 && v47 < p7 && v55 >= 0 && v55 < p7));
        let v64: i32 = i32(v63);
        let v65: i32 = (v64 - 128);
        let v66: i32 = ((v65 << 24u) >> 24u);
        word36 = word36 | select(0u, ((u32(v66) & 255u) << 0u), (gk < p1 && gn < p5));
      }
      {
        let gk: i32 = gk0 + 1;
        let v67: i32 = select(gk, p2, (gk > p2));
        let v68: i32 = select(v67, 0, (v67 < 0));
        let v69: i32 = (v68 / p4);
        let v70: i32 = (v69 * p5);
        let v71: i32 = (v68 / 3);
        let v72: i32 = (v71 % 3);
        let v73: i32 = (v43 + v72);
        let v74: i32 = (v73 + (-1));
        let v75: i32 = select(v74, p8, (v74 > p8));
        let v76: i32 = select(v75, 0, (v75 < 0));
        let v77: i32 = (v76 * p7);
        let v78: i32 = (v70 + v77);
        let v79: i32 = (v68 % 3);
        let v80: i32 = (v52 + v79);
        let v81: i32 = (v80 + (-1));
        let v82: i32 = select(v81, p8, (v81 > p8));
        let v83: i32 = select(v82, 0, (v82 < 0));
        let v84: i32 = (v78 + v83);
        let v85: u32 = (X1[v84 >> 2u] >> (u32((v84 & 3) * 8)));
        let v86: u32 = (v85 & 255u);
        let v87: u32 = select(v62, v86, (v74 >= 0 && v74 < p7 && v81 >= 0 && v81 < p7));
        let v88: i32 = i32(v87);
        let v89: i32 = (v88 - 128);
        let v90: i32 = ((v89 << 24u) >> 24u);
        word36 = word36 | select(0u, ((u32(v90) & 255u) << 8u), (gk < p1 && gn < p5));
      }
      {
        let gk: i32 = gk0 + 2;
        let v91: i32 = select(gk, p2, (gk > p2));
        let v92: i32 = select(v91, 0, (v91 < 0));
        let v93: i32 = (v92 / p4);
        let v94: i32 = (v93 * p5);
        let v95: i32 = (v92 / 3);
        let v96: i32 = (v95 % 3);
        let v97: i32 = (v43 + v96);
        let v98: i32 = (v97 + (-1));
        let v99: i32 = select(v98, p8, (v98 > p8));
        let v100: i32 = select(v99, 0, (v99 < 0));
        let v101: i32 = (v100 * p7);
        let v102: i32 = (v94 + v101);
        let v103: i32 = (v92 % 3);
        let v104: i32 = (v52 + v103);
        let v105: i32 = (v104 + (-1));
        let v106: i32 = select(v105, p8, (v105 > p8));
        let v107: i32 = select(v106, 0, (v106 < 0));
        let v108: i32 = (v102 + v107);
        let v109: u32 = (X1[v108 >> 2u] >> (u32((v108 & 3) * 8)));
        let v110: u32 = (v109 & 255u);
        let v111: u32 = select(v62, v110, (v98 >= 0 && v98 < p7 && v105 >= 0 && v105 < p7));
        let v112: i32 = i32(v111);
        let v113: i32 = (v112 - 128);
        let v114: i32 = ((v113 << 24u) >> 24u);
        word36 = word36 | select(0u, ((u32(v114) & 255u) << 16u), (gk < p1 && gn < p5));
      }
      {
        let gk: i32 = gk0 + 3;
        let v115: i32 = select(gk, p2, (gk > p2));
        let v116: i32 = select(v115, 0, (v115 < 0));
        let v117: i32 = (v116 / p4);
        let v118: i32 = (v117 * p5);
        let v119: i32 = (v116 / 3);
        let v120: i32 = (v119 % 3);
        let v121: i32 = (v43 + v120);
        let v122: i32 = (v121 + (-1));
        let v123: i32 = select(v122, p8, (v122 > p8));
        let v124: i32 = select(v123, 0, (v123 < 0));
        let v125: i32 = (v124 * p7);
        let v126: i32 = (v118 + v125);
        let v127: i32 = (v116 % 3);
        let v128: i32 = (v52 + v127);
        let v129: i32 = (v128 + (-1));
        let v130: i32 = select(v129, p8, (v129 > p8));
        let v131: i32 = select(v130, 0, (v130 < 0));
        let v132: i32 = (v126 + v131);
        let v133: u32 = (X1[v132 >> 2u] >> (u32((v132 & 3) * 8)));
        let v134: u32 = (v133 & 255u);
        let v135: u32 = select(v62, v134, (v122 >= 0 && v122 < p7 && v129 >= 0 && v129 < p7));
        let v136: i32 = i32(v135);
        let v137: i32 = (v136 - 128);
        let v138: i32 = ((v137 << 24u) >> 24u);
        word36 = word36 | select(0u, ((u32(v138) & 255u) << 24u), (gk < p1 && gn < p5));
      }
      shared1[place * 32 + line] = word36;
    }
    workgroupBarrier();
    for (var k: i32 = 0; k < 16; k += 1) {
      let v139: u32 = shared0[(r0 + 0) * 16 + k];
      let v140: u32 = shared0[(r0 + 1) * 16 + k];
      let v141: u32 = shared1[k * 32 + c0 + 0];
      let v142: u32 = shared1[k * 32 + c0 + 1];
      let v143: u32 = shared1[k * 32 + c0 + 2];
      let v144: u32 = shared1[k * 32 + c0 + 3];
      total0 += dot4I8Packed(v139, v141);
      total1 += dot4I8Packed(v139, v142);
      total2 += dot4I8Packed(v139, v143);
      total3 += dot4I8Packed(v139, v144);
      total4 += dot4I8Packed(v140, v141);
      total5 += dot4I8Packed(v140, v142);
      total6 += dot4I8Packed(v140, v143);
      total7 += dot4I8Packed(v140, v144);
    }
    workgroupBarrier();
  }
  let v150: i32 = i32(v62);
  let v151: i32 = (v150 - 128);
  for (var r: i32 = 0; r < 2; r += 1) {
    let sum145: i32 = select(total4, total0, (r == 0));
    let sum146: i32 = select(total5, total1, (r == 0));
    let sum147: i32 = select(total6, total2, (r == 0));
    let sum148: i32 = select(total7, total3, (r == 0));
    let gm: i32 = row + r;
    if (gm < p3) {
      let v149: i32 = X3[gm];
      let v160: i32 = (gm * p5);
      if (column + 0 < p5) {
        let four: i32 = (column + 0) / 4;
        let v152: i32 = (v149 * v151);
        let v153: i32 = (sum145 - v152);
        let v154: i32 = (v149 * v151);
        let v155: i32 = (sum146 - v154);
        let v156: i32 = (v149 * v151);
        let v157: i32 = (sum147 - v156);
        let v158: i32 = (v149 * v151);
        let v159: i32 = (sum148 - v158);
        let v161: i32 = (four * 4);
        let v162: i32 = (v160 + v161);
        Y0[(v162 >> 2u)] = vec4<i32>(v153, v155, v157, v159);
      }
    }
  }
}
