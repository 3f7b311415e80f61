@group(0) @binding(0) var<storage, read_write> X0: array<u32>;
@group(0) @binding(1) var<storage, read_write> Y0: array<u32>;
@group(0) @binding(2) var<uniform> P: array<vec4<i32>, 1>;
@compute @workgroup_size(64)
fn main_kernel(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) grid: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
  let p0: i32 = P[0].x;
  let p1: i32 = P[0].y;
  let p2: i32 = P[0].z;
  let p3: i32 = P[0].w;
  let w: i32 = ((i32(group.y) * i32(grid.x) + i32(group.x)) * 64 + i32(thread));
  if (w < p0) {
    var v0: u32 = 0u;
    for (var e: i32 = 0; e < 8; e += 1) {
      var i: i32 = (w * 8 + e);
      if (i > p1) { i = p1; }
      let v1: i32 = (i % p2);
      let v2: i32 = (v1 * p3);
      let v3: i32 = (i / p2);
      let v4: i32 = (v2 + v3);
      let v5: u32 = (X0[v4 >> 3u] >> (u32((v4 & 7) * 4)));
      let v6: i32 = bitcast<i32>(v5);
      let v7: i32 = ((v6 << 28u) >> 28u);
      let v8: i32 = (v7 + 1);
      let v9: i32 = ((v8 << 28u) >> 28u);
      let v10: u32 = bitcast<u32>(v9);
      let v11: u32 = (v10 & 15u);
      v0 = v0 | (v11 << u32((e * 4)));
    }
    Y0[w] = v0;
  }
}
