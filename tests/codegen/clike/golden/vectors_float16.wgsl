@group(0) @binding(0) var<storage, read_write> X0: array<u32>;
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
      let v1: u32 = (X0[i >> 1u] >> (u32((i & 1) * 16)));
      let v2: f32 = unpack2x16float(v1).x;
      let v3: f32 = (v2 * 2.0f);
      let v4: u32 = bitcast<u32>(v3);
      let v5: u32 = (v4 & 0x7fffffffu);
      let v6: u32 = ((v5 + 4095u + ((v5 >> 13u) & 1u)) >> 13u);
      let v7: u32 = (v6 - 114688u);
      let v8: f32 = select(0.0f, round(bitcast<f32>(v5) * 1.6777216e+07f), (v5 < 947912704u));
      let v9: u32 = select(v7, u32(v8), (v5 < 947912704u));
      let v10: u32 = select(v9, 31744u, (v6 > 146431u));
      let v11: u32 = ((v4 >> 31u) * 32768u);
      let v12: u32 = (v10 | v11);
      let v13: u32 = select(v12, (32256u | v11), (v5 > 0x7f800000u));
      v0 = v0 | (v13 << u32((e * 16)));
    }
    Y0[w] = v0;
  }
}
