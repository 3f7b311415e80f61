@group(0) @binding(0) var<storage, read_write> X0: array<u32>;
@group(0) @binding(1) var<storage, read_write> Y0: array<i32>;
@group(0) @binding(2) var<uniform> P: array<vec4<i32>, 1>;
var<workgroup> shared0: array<i32, 32>;
@compute @workgroup_size(32)
fn main_kernel(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) grid: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
  let p0: i32 = P[0].x;
  let row: i32 = (i32(group.y) * i32(grid.x) + i32(group.x));
  {
    var v0: i32 = 0;
    let v2: i32 = (row * p0);
    for (var k1: i32 = i32(thread); k1 < p0; k1 += 32) {
      let v3: i32 = (v2 + k1);
      let v4: u32 = (X0[v3 >> 2u] >> (u32((v3 & 3) * 8)));
      let v5: u32 = (v4 & 255u);
      let v6: i32 = i32(v5);
      let v7: i32 = (v6 - 128);
      let v8: i32 = ((v7 << 24u) >> 24u);
      let v9: i32 = (v0 + v8);
      v0 = v9;
    }
    workgroupBarrier();
    shared0[i32(thread)] = v0;
    workgroupBarrier();
    for (var h: i32 = 0; h < 5; h += 1) {
      let apart: i32 = 16 >> u32(h);
      if (i32(thread) < apart) {
        let v10: i32 = shared0[i32(thread)];
        let v11: i32 = shared0[i32(thread) + apart];
        let v12: i32 = (v10 + v11);
        shared0[i32(thread)] = v12;
      }
      workgroupBarrier();
    }
    let v13: i32 = shared0[0];
    for (var j: i32 = i32(thread); j < 1; j += 32) {
      Y0[row] = v13;
    }
  }
}

@group(0) @binding(0) var<storage, read_write> X0: array<u32>;
@group(0) @binding(1) var<storage, read_write> X1: array<u32>;
@group(0) @binding(2) var<storage, read_write> X2: array<u32>;
@group(0) @binding(3) var<storage, read_write> X3: array<vec4<i32>>;
@group(0) @binding(4) var<storage, read_write> Y0: array<vec4<i32>>;
@group(0) @binding(5) var<uniform> P: array<vec4<i32>, 1>;
var<workgroup> shared0: array<u32, 1024>;
var<workgroup> shared1: array<u32, 1024>;
@compute @workgroup_size(128)
fn main_kernel(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) grid: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
  let p0: i32 = P[0].x;
  let p1: i32 = P[0].y;
  let p2: i32 = P[0].z;
  let p3: i32 = P[0].w;
  let z: i32 = i32(group.z);
  let m0: i32 = i32(group.y) * 64;
  let n0: i32 = i32(group.x) * 64;
  let r0: i32 = (i32(thread) / 16) * 8;
  let c0: i32 = (i32(thread) % 16) * 4;
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
  var total8: i32 = 0;
  var total9: i32 = 0;
  var total10: i32 = 0;
  var total11: i32 = 0;
  var total12: i32 = 0;
  var total13: i32 = 0;
  var total14: i32 = 0;
  var total15: i32 = 0;
  var total16: i32 = 0;
  var total17: i32 = 0;
  var total18: i32 = 0;
  var total19: i32 = 0;
  var total20: i32 = 0;
  var total21: i32 = 0;
  var total22: i32 = 0;
  var total23: i32 = 0;
  var total24: i32 = 0;
  var total25: i32 = 0;
  var total26: i32 = 0;
  var total27: i32 = 0;
  var total28: i32 = 0;
  var total29: i32 = 0;
  var total30: i32 = 0;
  var total31: i32 = 0;
  for (var k0: i32 = 0; k0 < p3; k0 += 16) {
    for (var s: i32 = i32(thread); s < 1024; s += 128) {
      let line: i32 = s / 16;
      let place: i32 = s % 16;
      let gk0: i32 = (k0 + place) * 4;
      let gm0: i32 = m0 + line;
      let gk: i32 = gk0;
      let gm: i32 = gm0;
      shared0[(line) * 16 + place] = 0u;
      let v32: i32 = (gm * p0);
      let v33: i32 = (v32 + gk);
      if (gk < p0 && gm < p1) {
        shared0[(line) * 16 + place] = (X0[v33 >> 2u] ^ 0x80808080u);
      }
    }
    for (var s: i32 = i32(thread); s < 256; s += 128) {
      let line: i32 = (s % 16) * 4;
      let place: i32 = s / 16;
      let gk0: i32 = (k0 + place) * 4;
      let gn0: i32 = n0 + line;
      let gn: i32 = gn0;
      var word34: u32 = 0u;
      {
        let gk: i32 = gk0 + 0;
        if (gk < p0 && gn < p2) {
          let v38: i32 = (gk * p2);
          let v39: i32 = (v38 + gn);
          word34 = X1[v39 >> 2u];
        }
      }
      var word35: u32 = 0u;
      {
        let gk: i32 = gk0 + 1;
        if (gk < p0 && gn < p2) {
          let v40: i32 = (gk * p2);
          let v41: i32 = (v40 + gn);
          word35 = X1[v41 >> 2u];
        }
      }
      var word36: u32 = 0u;
      {
        let gk: i32 = gk0 + 2;
        if (gk < p0 && gn < p2) {
          let v42: i32 = (gk * p2);
          let v43: i32 = (v42 + gn);
          word36 = X1[v43 >> 2u];
        }
      }
      var word37: u32 = 0u;
      {
        let gk: i32 = gk0 + 3;
        if (gk < p0 && gn < p2) {
          let v44: i32 = (gk * p2);
          let v45: i32 = (v44 + gn);
          word37 = X1[v45 >> 2u];
        }
      }
      shared1[place * 64 + line + 0] = (((word34 >> 0u) & 255u) << 0u) | (((word35 >> 0u) & 255u) << 8u) | (((word36 >> 0u) & 255u) << 16u) | (((word37 >> 0u) & 255u) << 24u);
      shared1[place * 64 + line + 1] = (((word34 >> 8u) & 255u) << 0u) | (((word35 >> 8u) & 255u) << 8u) | (((word36 >> 8u) & 255u) << 16u) | (((word37 >> 8u) & 255u) << 24u);
      shared1[place * 64 + line + 2] = (((word34 >> 16u) & 255u) << 0u) | (((word35 >> 16u) & 255u) << 8u) | (((word36 >> 16u) & 255u) << 16u) | (((word37 >> 16u) & 255u) << 24u);
      shared1[place * 64 + line + 3] = (((word34 >> 24u) & 255u) << 0u) | (((word35 >> 24u) & 255u) << 8u) | (((word36 >> 24u) & 255u) << 16u) | (((word37 >> 24u) & 255u) << 24u);
    }
    workgroupBarrier();
    for (var k: i32 = 0; k < 16; k += 1) {
      let v46: u32 = shared0[(r0 + 0) * 16 + k];
      let v47: u32 = shared0[(r0 + 1) * 16 + k];
      let v48: u32 = shared0[(r0 + 2) * 16 + k];
      let v49: u32 = shared0[(r0 + 3) * 16 + k];
      let v50: u32 = shared0[(r0 + 4) * 16 + k];
      let v51: u32 = shared0[(r0 + 5) * 16 + k];
      let v52: u32 = shared0[(r0 + 6) * 16 + k];
      let v53: u32 = shared0[(r0 + 7) * 16 + k];
      let v54: u32 = shared1[k * 64 + c0 + 0];
      let v55: u32 = shared1[k * 64 + c0 + 1];
      let v56: u32 = shared1[k * 64 + c0 + 2];
      let v57: u32 = shared1[k * 64 + c0 + 3];
      total0 += dot4I8Packed(v46, v54);
      total1 += dot4I8Packed(v46, v55);
      total2 += dot4I8Packed(v46, v56);
      total3 += dot4I8Packed(v46, v57);
      total4 += dot4I8Packed(v47, v54);
      total5 += dot4I8Packed(v47, v55);
      total6 += dot4I8Packed(v47, v56);
      total7 += dot4I8Packed(v47, v57);
      total8 += dot4I8Packed(v48, v54);
      total9 += dot4I8Packed(v48, v55);
      total10 += dot4I8Packed(v48, v56);
      total11 += dot4I8Packed(v48, v57);
      total12 += dot4I8Packed(v49, v54);
      total13 += dot4I8Packed(v49, v55);
      total14 += dot4I8Packed(v49, v56);
      total15 += dot4I8Packed(v49, v57);
      total16 += dot4I8Packed(v50, v54);
      total17 += dot4I8Packed(v50, v55);
      total18 += dot4I8Packed(v50, v56);
      total19 += dot4I8Packed(v50, v57);
      total20 += dot4I8Packed(v51, v54);
      total21 += dot4I8Packed(v51, v55);
      total22 += dot4I8Packed(v51, v56);
      total23 += dot4I8Packed(v51, v57);
      total24 += dot4I8Packed(v52, v54);
      total25 += dot4I8Packed(v52, v55);
      total26 += dot4I8Packed(v52, v56);
      total27 += dot4I8Packed(v52, v57);
      total28 += dot4I8Packed(v53, v54);
      total29 += dot4I8Packed(v53, v55);
      total30 += dot4I8Packed(v53, v56);
      total31 += dot4I8Packed(v53, v57);
    }
    workgroupBarrier();
  }
  let v62: u32 = (X2[0 >> 2u] >> (u32((0 & 3) * 8)));
  let v63: u32 = (v62 & 255u);
  let v64: i32 = i32(v63);
  let v65: i32 = (v64 - 128);
  for (var r: i32 = 0; r < 8; r += 1) {
    let sum58: i32 = select(select(select(select(select(select(select(total28, total24, (r == 6)), total20, (r == 5)), total16, (r == 4)), total12, (r == 3)), total8, (r == 2)), total4, (r == 1)), total0, (r == 0));
    let sum59: i32 = select(select(select(select(select(select(select(total29, total25, (r == 6)), total21, (r == 5)), total17, (r == 4)), total13, (r == 3)), total9, (r == 2)), total5, (r == 1)), total1, (r == 0));
    let sum60: i32 = select(select(select(select(select(select(select(total30, total26, (r == 6)), total22, (r == 5)), total18, (r == 4)), total14, (r == 3)), total10, (r == 2)), total6, (r == 1)), total2, (r == 0));
    let sum61: i32 = select(select(select(select(select(select(select(total31, total27, (r == 6)), total23, (r == 5)), total19, (r == 4)), total15, (r == 3)), total11, (r == 2)), total7, (r == 1)), total3, (r == 0));
    let gm: i32 = row + r;
    if (gm < p1) {
      let v80: i32 = (gm * p2);
      if (column + 0 < p2) {
        let four: i32 = (column + 0) / 4;
        let v67: i32 = (four * 4);
        let w66: vec4<i32> = X3[v67 >> 2u];
        let v68: i32 = w66.x;
        let v69: i32 = (v65 * v68);
        let v70: i32 = (sum58 - v69);
        let v71: i32 = w66.y;
        let v72: i32 = (v65 * v71);
        let v73: i32 = (sum59 - v72);
        let v74: i32 = w66.z;
        let v75: i32 = (v65 * v74);
        let v76: i32 = (sum60 - v75);
        let v77: i32 = w66.w;
        let v78: i32 = (v65 * v77);
        let v79: i32 = (sum61 - v78);
        let v81: i32 = (v80 + v67);
        Y0[(v81 >> 2u)] = vec4<i32>(v70, v73, v76, v79);
      }
    }
  }
}

@group(0) @binding(0) var<storage, read_write> X0: array<i32>;
@group(0) @binding(1) var<storage, read_write> X1: array<u32>;
@group(0) @binding(2) var<storage, read_write> X2: array<u32>;
@group(0) @binding(3) var<storage, read_write> Y0: array<vec4<i32>>;
@group(0) @binding(4) var<uniform> P: array<vec4<i32>, 1>;
@compute @workgroup_size(64)
fn main_kernel(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) grid: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
  let p0: i32 = P[0].x;
  let p1: i32 = P[0].y;
  let w: i32 = ((i32(group.y) * i32(grid.x) + i32(group.x)) * 64 + i32(thread));
  let v3: u32 = (X1[0 >> 2u] >> (u32((0 & 3) * 8)));
  let v4: u32 = (v3 & 255u);
  let v5: i32 = i32(v4);
  let v6: i32 = (v5 - 128);
  let v7: i32 = (v6 * 100);
  if (w < p0) {
    let v0: i32 = (w / p1);
    let a0: i32 = v0;
    let v1: i32 = (w % p1);
    let a1: i32 = v1;
    let v2: i32 = X0[a0];
    let v8: i32 = (v2 - v7);
    let v9: i32 = (a1 * 4);
    let v10: u32 = X2[v9 >> 2u];
    let v11: i32 = bitcast<i32>(v10);
    let v12: i32 = ((v11 << 24u) >> 24u);
    let v13: i32 = (v8 * v12);
    let v14: i32 = bitcast<i32>((v10 >> 8u));
    let v15: i32 = ((v14 << 24u) >> 24u);
    let v16: i32 = (v8 * v15);
    let v17: i32 = bitcast<i32>((v10 >> 16u));
    let v18: i32 = ((v17 << 24u) >> 24u);
    let v19: i32 = (v8 * v18);
    let v20: i32 = bitcast<i32>((v10 >> 24u));
    let v21: i32 = ((v20 << 24u) >> 24u);
    let v22: i32 = (v8 * v21);
    Y0[w] = vec4<i32>(v13, v16, v19, v22);
  }
}

@group(0) @binding(0) var<storage, read_write> X0: array<vec4<i32>>;
@group(0) @binding(1) var<storage, read_write> X1: array<vec4<i32>>;
@group(0) @binding(2) var<storage, read_write> Y0: array<vec4<i32>>;
@group(0) @binding(3) var<uniform> P: array<vec4<i32>, 1>;
@compute @workgroup_size(64)
fn main_kernel(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) grid: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
  let p0: i32 = P[0].x;
  let w: i32 = ((i32(group.y) * i32(grid.x) + i32(group.x)) * 64 + i32(thread));
  if (w < p0) {
    let a0: i32 = w;
    let v1: i32 = (a0 * 4);
    let w0: vec4<i32> = X0[v1 >> 2u];
    let v2: i32 = w0.x;
    let w3: vec4<i32> = X1[v1 >> 2u];
    let v4: i32 = w3.x;
    let v5: i32 = (v2 - v4);
    let v6: i32 = w0.y;
    let v7: i32 = w3.y;
    let v8: i32 = (v6 - v7);
    let v9: i32 = w0.z;
    let v10: i32 = w3.z;
    let v11: i32 = (v9 - v10);
    let v12: i32 = w0.w;
    let v13: i32 = w3.w;
    let v14: i32 = (v12 - v13);
    Y0[w] = vec4<i32>(v5, v8, v11, v14);
  }
}
