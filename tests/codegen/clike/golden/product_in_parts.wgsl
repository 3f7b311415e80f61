@group(0) @binding(0) var<storage, read_write> X0: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read_write> X1: array<vec4<f32>>;
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
  let z: i32 = i32(group.z);
  let m0: i32 = i32(group.y) * 16;
  let n0: i32 = i32(group.x) * 32;
  let r0: i32 = (i32(thread) / 8) * 2;
  let c0: i32 = (i32(thread) % 8) * 4;
  let row: i32 = m0 + r0;
  let column: i32 = n0 + c0;
  var total0: vec4<f32> = vec4<f32>(0.0f, 0.0f, 0.0f, 0.0f);
  var total1: vec4<f32> = vec4<f32>(0.0f, 0.0f, 0.0f, 0.0f);
  let v3: i32 = (z * p1);
  for (var k0: i32 = 0; k0 < p1; k0 += 16) {
    for (var s: i32 = i32(thread); s < 64; s += 64) {
      let line: i32 = s / 4;
      let place: i32 = s % 4;
      {
        let gk0: i32 = k0 + place * 4;
        let gm0: i32 = m0 + line;
        let gk: i32 = gk0;
        let gm: i32 = gm0;
        let v2: i32 = (gm * p0);
        let v4: i32 = (v3 + gk);
        let v5: i32 = (v2 + v4);
        shared0[line * 4 + place] = vec4<f32>(0.0f, 0.0f, 0.0f, 0.0f);
        if (gk < p1 && gm < p2) {
          shared0[line * 4 + place] = X0[v5 >> 2u];
        }
      }
    }
    for (var s: i32 = i32(thread); s < 128; s += 64) {
      let line: i32 = s / 8;
      let place: i32 = s % 8;
      {
        let gk0: i32 = k0 + line;
        let gn0: i32 = n0 + place * 4;
        let gk: i32 = gk0;
        let gn: i32 = gn0;
        let v6: i32 = (v3 + gk);
        let v7: i32 = (v6 * p3);
        let v8: i32 = (v7 + gn);
        shared1[line * 8 + place] = vec4<f32>(0.0f, 0.0f, 0.0f, 0.0f);
        if (gk < p1 && gn < p3) {
          shared1[line * 8 + place] = X1[v8 >> 2u];
        }
      }
    }
    workgroupBarrier();
    for (var k: i32 = 0; k < 4; k += 1) {
      let y9: vec4<f32> = shared1[(k * 4 + 0) * 8 + c0 / 4 + 0];
      let y10: vec4<f32> = shared1[(k * 4 + 1) * 8 + c0 / 4 + 0];
      let y11: vec4<f32> = shared1[(k * 4 + 2) * 8 + c0 / 4 + 0];
      let y12: vec4<f32> = shared1[(k * 4 + 3) * 8 + c0 / 4 + 0];
      let x13: vec4<f32> = shared0[(r0 + 0) * 4 + k];
      total0 += x13.x * y9;
      total0 += x13.y * y10;
      total0 += x13.z * y11;
      total0 += x13.w * y12;
      let x14: vec4<f32> = shared0[(r0 + 1) * 4 + k];
      total1 += x14.x * y9;
      total1 += x14.y * y10;
      total1 += x14.z * y11;
      total1 += x14.w * y12;
    }
    workgroupBarrier();
  }
  let v16: i32 = (z * p4);
  for (var r: i32 = 0; r < 2; r += 1) {
    let sum15: vec4<f32> = select(total1, total0, (r == 0));
    let gm: i32 = row + r;
    if (gm < p2) {
      let v17: i32 = (gm * p3);
      let v18: i32 = (v16 + v17);
      if (column + 0 < p3) {
        let four: i32 = (column + 0) / 4;
        let v19: i32 = (four * 4);
        let v20: i32 = (v18 + v19);
        Y0[(v20 >> 2u)] = vec4<f32>(sum15.x, sum15.y, sum15.z, sum15.w);
      }
    }
  }
}

@group(0) @binding(0) var<storage, read_write> X0: array<f32>;
@group(0) @binding(1) var<storage, read_write> X1: array<f32>;
@group(0) @binding(2) var<storage, read_write> Y0: array<f32>;
@group(0) @binding(3) var<uniform> P: array<vec4<i32>, 1>;
@compute @workgroup_size(64)
fn main_kernel(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) grid: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
  let p0: i32 = P[0].x;
  let p1: i32 = P[0].y;
  let p2: i32 = P[0].z;
  let i: i32 = ((i32(group.y) * i32(grid.x) + i32(group.x)) * 64 + i32(thread));
  if (i < p0) {
    var v0: f32 = 0.0f;
    let v3: i32 = (i / p1);
    let v4: i32 = (v3 * p1);
    let v6: i32 = (i % p1);
    for (var k1: i32 = 0; k1 < p2; k1 += 1) {
      let v2: i32 = (k1 * p0);
      let v5: i32 = (v2 + v4);
      let v7: i32 = (v5 + v6);
      let v8: f32 = X0[v7];
      let v9: f32 = (v0 + v8);
      v0 = v9;
    }
    let v10: f32 = X1[v6];
    let v11: f32 = (v0 + v10);
    Y0[i] = v11;
  }
}
