@group(0) @binding(0) var<storage, read_write> X0: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read_write> X1: array<f32>;
@group(0) @binding(2) var<storage, read_write> X2: array<f32>;
@group(0) @binding(3) var<storage, read_write> Y0: array<f32>;
@group(0) @binding(4) var<uniform> P: array<vec4<i32>, 2>;
var<workgroup> shared0: array<vec4<f32>, 256>;
var<workgroup> shared1: array<vec4<f32>, 256>;
@compute @workgroup_size(128)
fn main_kernel(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) grid: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
  let p0: i32 = P[0].x;
  let p1: i32 = P[0].y;
  let p2: i32 = P[0].z;
  let p3: i32 = P[0].w;
  let p4: i32 = P[1].x;
  let z: i32 = i32(group.z);
  let m0: i32 = i32(group.y) * 64;
  let n0: i32 = i32(group.x) * 64;
  let r0: i32 = (i32(thread) / 16) * 8;
  let c0: i32 = (i32(thread) % 16) * 4;
  let row: i32 = m0 + r0;
  let column: i32 = n0 + c0;
  var total0: vec4<f32> = vec4<f32>(0.0f, 0.0f, 0.0f, 0.0f);
  var total1: vec4<f32> = vec4<f32>(0.0f, 0.0f, 0.0f, 0.0f);
  var total2: vec4<f32> = vec4<f32>(0.0f, 0.0f, 0.0f, 0.0f);
  var total3: vec4<f32> = vec4<f32>(0.0f, 0.0f, 0.0f, 0.0f);
  var total4: vec4<f32> = vec4<f32>(0.0f, 0.0f, 0.0f, 0.0f);
  var total5: vec4<f32> = vec4<f32>(0.0f, 0.0f, 0.0f, 0.0f);
  var total6: vec4<f32> = vec4<f32>(0.0f, 0.0f, 0.0f, 0.0f);
  var total7: vec4<f32> = vec4<f32>(0.0f, 0.0f, 0.0f, 0.0f);
  for (var k0: i32 = 0; k0 < p0; k0 += 16) {
    for (var s: i32 = i32(thread); s < 256; s += 128) {
      let line: i32 = s / 4;
      let place: i32 = s % 4;
      {
        let gk0: i32 = k0 + place * 4;
        let gm0: i32 = m0 + line;
        let gk: i32 = gk0;
        let gm: i32 = gm0;
        let v8: i32 = (gm * p0);
        let v9: i32 = (v8 + gk);
        shared0[line * 4 + place] = vec4<f32>(0.0f, 0.0f, 0.0f, 0.0f);
        if (gk < p0 && gm < p1) {
          shared0[line * 4 + place] = X0[v9 >> 2u];
        }
      }
    }
    for (var s: i32 = i32(thread); s < 256; s += 128) {
      let line: i32 = s / 16;
      let place: i32 = s % 16;
      {
        let gk0: i32 = k0 + line;
        let gn0: i32 = n0 + place * 4;
        var part10: f32 = 0.0f;
        var part11: f32 = 0.0f;
        var part12: f32 = 0.0f;
        var part13: f32 = 0.0f;
        {
          let gk: i32 = gk0;
          let v14: i32 = select(gk, p2, (gk > p2));
          let v15: i32 = select(v14, 0, (v14 < 0));
          let v16: i32 = (v15 * p3);
          {
            let gn: i32 = gn0;
            let v17: i32 = select(gn, p4, (gn > p4));
            let v18: i32 = select(v17, 0, (v17 < 0));
            let v19: i32 = (v16 + v18);
            let v20: f32 = X1[v19];
            part10 = select(0.0f, v20, (gk < p0 && gn < p3));
          }
          {
            let gn: i32 = gn0 + 1;
            let v21: i32 = select(gn, p4, (gn > p4));
            let v22: i32 = select(v21, 0, (v21 < 0));
            let v23: i32 = (v16 + v22);
            let v24: f32 = X1[v23];
            part11 = select(0.0f, v24, (gk < p0 && gn < p3));
          }
          {
            let gn: i32 = gn0 + 2;
            let v25: i32 = select(gn, p4, (gn > p4));
            let v26: i32 = select(v25, 0, (v25 < 0));
            let v27: i32 = (v16 + v26);
            let v28: f32 = X1[v27];
            part12 = select(0.0f, v28, (gk < p0 && gn < p3));
          }
          {
            let gn: i32 = gn0 + 3;
            let v29: i32 = select(gn, p4, (gn > p4));
            let v30: i32 = select(v29, 0, (v29 < 0));
            let v31: i32 = (v16 + v30);
            let v32: f32 = X1[v31];
            part13 = select(0.0f, v32, (gk < p0 && gn < p3));
          }
        }
        shared1[line * 16 + place] = vec4<f32>(part10, part11, part12, part13);
      }
    }
    workgroupBarrier();
    for (var k: i32 = 0; k < 4; k += 1) {
      let y33: vec4<f32> = shared1[(k * 4 + 0) * 16 + c0 / 4 + 0];
      let y34: vec4<f32> = shared1[(k * 4 + 1) * 16 + c0 / 4 + 0];
      let y35: vec4<f32> = shared1[(k * 4 + 2) * 16 + c0 / 4 + 0];
      let y36: vec4<f32> = shared1[(k * 4 + 3) * 16 + c0 / 4 + 0];
      let x37: vec4<f32> = shared0[(r0 + 0) * 4 + k];
      total0 += x37.x * y33;
      total0 += x37.y * y34;
      total0 += x37.z * y35;
      total0 += x37.w * y36;
      let x38: vec4<f32> = shared0[(r0 + 1) * 4 + k];
      total1 += x38.x * y33;
      total1 += x38.y * y34;
      total1 += x38.z * y35;
      total1 += x38.w * y36;
      let x39: vec4<f32> = shared0[(r0 + 2) * 4 + k];
      total2 += x39.x * y33;
      total2 += x39.y * y34;
      total2 += x39.z * y35;
      total2 += x39.w * y36;
      let x40: vec4<f32> = shared0[(r0 + 3) * 4 + k];
      total3 += x40.x * y33;
      total3 += x40.y * y34;
      total3 += x40.z * y35;
      total3 += x40.w * y36;
      let x41: vec4<f32> = shared0[(r0 + 4) * 4 + k];
      total4 += x41.x * y33;
      total4 += x41.y * y34;
      total4 += x41.z * y35;
      total4 += x41.w * y36;
      let x42: vec4<f32> = shared0[(r0 + 5) * 4 + k];
      total5 += x42.x * y33;
      total5 += x42.y * y34;
      total5 += x42.z * y35;
      total5 += x42.w * y36;
      let x43: vec4<f32> = shared0[(r0 + 6) * 4 + k];
      total6 += x43.x * y33;
      total6 += x43.y * y34;
      total6 += x43.z * y35;
      total6 += x43.w * y36;
      let x44: vec4<f32> = shared0[(r0 + 7) * 4 + k];
      total7 += x44.x * y33;
      total7 += x44.y * y34;
      total7 += x44.z * y35;
      total7 += x44.w * y36;
    }
    workgroupBarrier();
  }
  for (var r: i32 = 0; r < 8; r += 1) {
    let sum45: vec4<f32> = select(select(select(select(select(select(select(total7, total6, (r == 6)), total5, (r == 5)), total4, (r == 4)), total3, (r == 3)), total2, (r == 2)), total1, (r == 1)), total0, (r == 0));
    let gm: i32 = row + r;
    if (gm < p1) {
      let v48: i32 = (gm * p3);
      {
        let gn: i32 = column + 0;
        if (gn < p3) {
          let v46: f32 = X2[gn];
          let v47: f32 = (sum45.x + v46);
          let v49: i32 = (v48 + gn);
          Y0[v49] = v47;
        }
      }
      {
        let gn: i32 = column + 1;
        if (gn < p3) {
          let v50: f32 = X2[gn];
          let v51: f32 = (sum45.y + v50);
          let v52: i32 = (v48 + gn);
          Y0[v52] = v51;
        }
      }
      {
        let gn: i32 = column + 2;
        if (gn < p3) {
          let v53: f32 = X2[gn];
          let v54: f32 = (sum45.z + v53);
          let v55: i32 = (v48 + gn);
          Y0[v55] = v54;
        }
      }
      {
        let gn: i32 = column + 3;
        if (gn < p3) {
          let v56: f32 = X2[gn];
          let v57: f32 = (sum45.w + v56);
          let v58: i32 = (v48 + gn);
          Y0[v58] = v57;
        }
      }
    }
  }
}
