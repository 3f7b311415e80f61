@group(0) @binding(0) var<storage, read_write> X0: array<f32>;
@group(0) @binding(1) var<storage, read_write> Y0: array<u32>;
@group(0) @binding(2) var<uniform> P: array<vec4<i32>, 1>;
@compute @workgroup_size(64)
fn main_kernel(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) grid: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
  let p0: i32 = P[0].x;
  let p1: i32 = P[0].y;
  let w: i32 = ((i32(group.y) * i32(grid.x) + i32(group.x)) * 64 + i32(thread));
  if (w < p0) {
    var v0: u32 = 0u;
    for (var e: i32 = 0; e < 2; e += 1) {
      var i: i32 = (w * 2 + e);
      if (i > p1) { i = p1; }
      let v1: f32 = X0[i];
      let v2: u32 = bitcast<u32>(v1);
      let v3: u32 = (v2 & 0x7fffffffu);
      let v4: u32 = ((v3 + 4095u + ((v3 >> 13u) & 1u)) >> 13u);
      let v5: u32 = (v4 - 114688u);
      let v6: f32 = select(0.0f, round(bitcast<f32>(v3) * 1.6777216e+07f), (v3 < 947912704u));
      let v7: u32 = select(v5, u32(v6), (v3 < 947912704u));
      let v8: u32 = select(v7, 31744u, (v4 > 146431u));
      let v9: u32 = ((v2 >> 31u) * 32768u);
      let v10: u32 = (v8 | v9);
      let v11: u32 = select(v10, (32256u | v9), (v3 > 0x7f800000u));
      let v12: f32 = unpack2x16float(v11).x;
      v0 = v0 | (v11 << u32((e * 16)));
    }
    Y0[w] = v0;
  }
}
