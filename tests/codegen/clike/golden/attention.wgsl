@group(0) @binding(0) var<storage, read_write> X0: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read_write> X1: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read_write> X2: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read_write> Y0: array<f32>;
@group(0) @binding(4) var<uniform> P: array<vec4<i32>, 2>;
var<workgroup> shared0: array<vec4<f32>, 64>;
var<workgroup> shared1: array<vec4<f32>, 64>;
@compute @workgroup_size(64)
fn main_kernel(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) grid: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
  let zero = thread >> 31u;
  let p0: i32 = P[0].x;
  let p1: i32 = P[0].y;
  let p2: i32 = P[0].z;
  let p3: i32 = P[0].w;
  let p4: i32 = P[1].x;
  let p5: i32 = P[1].y;
  let group_: i32 = (i32(group.y) * i32(grid.x) + i32(group.x));
  if (group_ < p5) {
    let z: i32 = group_ / p0;
    let line: i32 = (group_ % p0) * 64 + i32(thread);
    let gm: i32 = select(p2, line, (line < p1));
    var highest: f32 = bitcast<f32>(0xff800000u | zero);
    var powers: f32 = 0.0f;
    var sum0: vec4<f32> = vec4<f32>(0.0f, 0.0f, 0.0f, 0.0f);
    var sum1: vec4<f32> = vec4<f32>(0.0f, 0.0f, 0.0f, 0.0f);
    let v1: i32 = (z * p3);
    let v2: i32 = (gm * p4);
    let v3: i32 = (v1 + v2);
    let w0: vec4<f32> = X0[v3 >> 2u];
    let v5: i32 = (v3 + 4);
    let w4: vec4<f32> = X0[v5 >> 2u];
    for (var k0: i32 = 0; k0 < p1; k0 += 32) {
      for (var s: i32 = i32(thread); s < 64; s += 64) {
        let key: i32 = k0 + s / 2;
        let gn: i32 = select(p2, key, (key < p2));
        let place: i32 = (s % 2) * 4;
        let v7: i32 = (gn * p4);
        let v8: i32 = (v1 + v7);
        let v9: i32 = (v8 + place);
        let w6: vec4<f32> = X1[v9 >> 2u];
        shared0[s] = w6;
      }
      for (var s: i32 = i32(thread); s < 64; s += 64) {
        let key: i32 = k0 + s / 2;
        let gn: i32 = select(p2, key, (key < p2));
        let place: i32 = (s % 2) * 4;
        let v11: i32 = (gn * p4);
        let v12: i32 = (v1 + v11);
        let v13: i32 = (v12 + place);
        let w10: vec4<f32> = X2[v13 >> 2u];
        shared1[s] = w10;
      }
      let v14: i32 = (p1 - k0);
      let some: i32 = select(32, v14, (v14 < 32));
      workgroupBarrier();
      for (var j: i32 = 0; j < some; j += 1) {
        let gn: i32 = k0 + j;
        var v15: f32 = 0.0f;
        let w16: vec4<f32> = shared0[j * 2 + 0];
        v15 = v15 + (w0.x * w16.x + w0.y * w16.y + w0.z * w16.z + w0.w * w16.w);
        let w17: vec4<f32> = shared0[j * 2 + 1];
        v15 = v15 + (w4.x * w17.x + w4.y * w17.y + w4.z * w17.z + w4.w * w17.w);
        let v18: f32 = (v15 * 0.25f);
        if (!(v18 == bitcast<f32>(0xff800000u | zero))) {
          if (v18 > highest) {
            let less: f32 = exp(highest - v18);
            powers = powers * less;
            sum0.x *= less; sum0.y *= less; sum0.z *= less; sum0.w *= less;
            sum1.x *= less; sum1.y *= less; sum1.z *= less; sum1.w *= less;
            highest = v18;
          }
          let power: f32 = exp(v18 - highest);
          powers = powers + power;
          let w19: vec4<f32> = shared1[j * 2 + 0];
          sum0 += power * w19;
          let w20: vec4<f32> = shared1[j * 2 + 1];
          sum1 += power * w20;
        }
      }
      workgroupBarrier();
    }
    let i: i32 = z * p1 + line;
    let v22: i32 = (i * p4);
    if (line < p1) {
      let v21: f32 = (1.0f / powers);
      Y0[v22 + 0] = sum0.x * v21;
      Y0[v22 + 1] = sum0.y * v21;
      Y0[v22 + 2] = sum0.z * v21;
      Y0[v22 + 3] = sum0.w * v21;
      Y0[v22 + 4] = sum1.x * v21;
      Y0[v22 + 5] = sum1.y * v21;
      Y0[v22 + 6] = sum1.z * v21;
      Y0[v22 + 7] = sum1.w * v21;
    }
  }
}

@group(0) @binding(0) var<storage, read_write> X0: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read_write> Y0: array<vec4<f32>>;
@group(0) @binding(2) var<uniform> P: array<vec4<i32>, 1>;
@compute @workgroup_size(64)
fn main_kernel(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) grid: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
  let p0: i32 = P[0].x;
  let w: i32 = ((i32(group.y) * i32(grid.x) + i32(group.x)) * 64 + i32(thread));
  if (w < p0) {
    let a1: i32 = w;
    let v1: i32 = (a1 * 4);
    let w0: vec4<f32> = X0[v1 >> 2u];
    let v2: f32 = w0.x;
    let v3: f32 = w0.y;
    let v4: f32 = w0.z;
    let v5: f32 = w0.w;
    Y0[w] = vec4<f32>(v2, v3, v4, v5);
  }
}
