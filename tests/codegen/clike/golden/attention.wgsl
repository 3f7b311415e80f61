@group(0) @binding(0) var<storage, read_write> X0: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read_write> X1: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read_write> X2: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read_write> Y0: array<f32>;
@group(0) @binding(4) var<uniform> P: array<vec4<i32>, 1>;
@compute @workgroup_size(64)
fn main_kernel(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) grid: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
  let zero = thread >> 31u;
  let p0: i32 = P[0].x;
  let p1: i32 = P[0].y;
  let p2: i32 = P[0].z;
  let p3: i32 = P[0].w;
  let line: i32 = (i32(group.y) * i32(grid.x) + i32(group.x)) * 64 + i32(thread);
  let i: i32 = select(p0, line, (line < p1));
  let z: i32 = i / p2;
  let gm: i32 = i % p2;
  var highest: f32 = bitcast<f32>(0xff800000u | zero);
  var powers: f32 = 0.0f;
  var sum0: vec4<f32> = vec4<f32>(0.0f, 0.0f, 0.0f, 0.0f);
  var sum1: vec4<f32> = vec4<f32>(0.0f, 0.0f, 0.0f, 0.0f);
  let v2: i32 = (z * p1);
  let v3: i32 = (gm * p3);
  let v4: i32 = (v2 + v3);
  let w1: vec4<f32> = X0[v4 >> 2u];
  let v9: i32 = (v4 + 4);
  let w8: vec4<f32> = X0[v9 >> 2u];
  for (var gn: i32 = 0; gn < p2; gn += 1) {
    var v0: f32 = 0.0f;
    let v6: i32 = (gn * p3);
    let v7: i32 = (v2 + v6);
    let w5: vec4<f32> = X1[v7 >> 2u];
    v0 = v0 + (w1.x * w5.x + w1.y * w5.y + w1.z * w5.z + w1.w * w5.w);
    let v11: i32 = (v7 + 4);
    let w10: vec4<f32> = X1[v11 >> 2u];
    v0 = v0 + (w8.x * w10.x + w8.y * w10.y + w8.z * w10.z + w8.w * w10.w);
    let v12: f32 = (v0 * 0.25f);
    if (!(v12 == bitcast<f32>(0xff800000u | zero))) {
      if (v12 > highest) {
        let less: f32 = exp(highest - v12);
        powers = powers * less;
        sum0.x *= less; sum0.y *= less; sum0.z *= less; sum0.w *= less;
        sum1.x *= less; sum1.y *= less; sum1.z *= less; sum1.w *= less;
        highest = v12;
      }
      let power: f32 = exp(v12 - highest);
      powers = powers + power;
      let w13: vec4<f32> = X2[v7 >> 2u];
      sum0 += power * w13;
      let w14: vec4<f32> = X2[v11 >> 2u];
      sum1 += power * w14;
    }
  }
  let v15: i32 = (i * p3);
  if (line < p1) {
    Y0[v15 + 0] = sum0.x / powers;
    Y0[v15 + 1] = sum0.y / powers;
    Y0[v15 + 2] = sum0.z / powers;
    Y0[v15 + 3] = sum0.w / powers;
    Y0[v15 + 4] = sum1.x / powers;
    Y0[v15 + 5] = sum1.y / powers;
    Y0[v15 + 6] = sum1.z / powers;
    Y0[v15 + 7] = sum1.w / powers;
  }
}

@group(0) @binding(0) var<storage, read_write> X0: array<f32>;
@group(0) @binding(1) var<storage, read_write> Y0: array<f32>;
@group(0) @binding(2) var<uniform> P: array<vec4<i32>, 1>;
@compute @workgroup_size(64)
fn main_kernel(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) grid: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
  let p0: i32 = P[0].x;
  let i: i32 = ((i32(group.y) * i32(grid.x) + i32(group.x)) * 64 + i32(thread));
  if (i < p0) {
    let v0: f32 = X0[i];
    Y0[i] = v0;
  }
}
