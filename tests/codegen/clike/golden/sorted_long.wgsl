@group(0) @binding(0) var<storage, read_write> X0: array<f32>;
@group(0) @binding(1) var<storage, read_write> Y0: array<f32>;
@group(0) @binding(2) var<storage, read_write> Y1: array<i32>;
@group(0) @binding(3) var<uniform> P: array<vec4<i32>, 1>;
@compute @workgroup_size(64)
fn main_kernel(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) grid: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
  let p0: i32 = P[0].x;
  let p1: i32 = P[0].y;
  let p2: i32 = P[0].z;
  let i: i32 = ((i32(group.y) * i32(grid.x) + i32(group.x)) * 64 + i32(thread));
  if (i < p0) {
    let v0: f32 = X0[i];
    let v1: i32 = (i % p1);
    let v2: i32 = (v1 - v1 % p2);
    let v3: i32 = (v2 + p2);
    let stop: i32 = select(p1, v3, (v3 < p1));
    var v4: i32 = v2;
    let v5: i32 = (i / p1);
    let v6: i32 = (v5 * p1);
    for (var j: i32 = v2; j < stop; j += 1) {
      let v7: i32 = (v6 + j);
      let v8: f32 = X0[v7];
      let v9: u32 = (bitcast<u32>(v0) & 0x7fffffffu);
      let v10: bool = (v9 > 0x7f800000u);
      let v11: u32 = (bitcast<u32>(v8) & 0x7fffffffu);
      let v12: bool = (v11 > 0x7f800000u);
      let v13: u32 = (bitcast<u32>(v8) & 0x7fffffffu);
      let v14: bool = (v13 > 0x7f800000u);
      let v15: u32 = (bitcast<u32>(v0) & 0x7fffffffu);
      let v16: bool = (v15 > 0x7f800000u);
      if (((v0 < v8) || (v12 && !v10)) || (!((v8 < v0) || (v16 && !v14)) && j < v1)) { v4 = v4 + 1; }
    }
    let rank: i32 = v4;
    let v17: i32 = (v6 + rank);
    Y0[v17] = v0;
    Y1[v17] = v1;
  }
}

@group(0) @binding(0) var<storage, read_write> X0: array<f32>;
@group(0) @binding(1) var<storage, read_write> X1: array<i32>;
@group(0) @binding(2) var<storage, read_write> Y0: array<f32>;
@group(0) @binding(3) var<storage, read_write> Y1: array<i32>;
@group(0) @binding(4) var<uniform> P: array<vec4<i32>, 1>;
@compute @workgroup_size(64)
fn main_kernel(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) grid: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
  let p0: i32 = P[0].x;
  let p1: i32 = P[0].y;
  let p2: i32 = P[0].z;
  let p3: i32 = P[0].w;
  let i: i32 = ((i32(group.y) * i32(grid.x) + i32(group.x)) * 64 + i32(thread));
  if (i < p0) {
    let v0: f32 = X0[i];
    let v1: i32 = (i % p1);
    let v2: i32 = (v1 / p2);
    let v3: i32 = (v2 * p2);
    let v4: bool = ((v2 & 1) == 0);
    let v5: i32 = select(v3 - p2, v3 + p2, v4);
    let v6: i32 = select(p1, v5, (v5 < p1));
    let v7: i32 = (v6 + p2);
    let stop: i32 = select(p1, v7, (v7 < p1));
    var low: i32 = v6;
    var high: i32 = stop;
    let v8: i32 = (i / p1);
    let v9: i32 = (v8 * p1);
    for (var s: i32 = 0; s < p3; s += 1) {
      if (low < high) {
        let middle: i32 = low + (high - low) / 2;
        let v10: i32 = (v9 + middle);
        let v11: f32 = X0[v10];
        let v12: u32 = (bitcast<u32>(v0) & 0x7fffffffu);
        let v13: bool = (v12 > 0x7f800000u);
        let v14: u32 = (bitcast<u32>(v11) & 0x7fffffffu);
        let v15: bool = (v14 > 0x7f800000u);
        let v16: u32 = (bitcast<u32>(v11) & 0x7fffffffu);
        let v17: bool = (v16 > 0x7f800000u);
        let v18: u32 = (bitcast<u32>(v0) & 0x7fffffffu);
        let v19: bool = (v18 > 0x7f800000u);
        let v20: bool = select(!((v11 < v0) || (v19 && !v17)), ((v0 < v11) || (v15 && !v13)), v4);
        low = select(low, middle + 1, v20);
        high = select(middle, high, v20);
      }
    }
    let v21: i32 = X1[i];
    let rank: i32 = select(v6, v3, v4) + (v1 - v3) + (low - v6);
    let v22: i32 = (v9 + rank);
    Y0[v22] = v0;
    Y1[v22] = v21;
  }
}

@group(0) @binding(0) var<storage, read_write> X0: array<f32>;
@group(0) @binding(1) var<storage, read_write> X1: array<i32>;
@group(0) @binding(2) var<storage, read_write> Y0: array<f32>;
@group(0) @binding(3) var<storage, read_write> Y1: array<i32>;
@group(0) @binding(4) var<uniform> P: array<vec4<i32>, 1>;
@compute @workgroup_size(64)
fn main_kernel(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) grid: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
  let p0: i32 = P[0].x;
  let p1: i32 = P[0].y;
  let p2: i32 = P[0].z;
  let p3: i32 = P[0].w;
  let i: i32 = ((i32(group.y) * i32(grid.x) + i32(group.x)) * 64 + i32(thread));
  if (i < p0) {
    let v0: f32 = X0[i];
    let v1: i32 = (i % p1);
    let v2: i32 = (v1 / p2);
    let v3: i32 = (v2 * p2);
    let v4: bool = ((v2 & 1) == 0);
    let v5: i32 = select(v3 - p2, v3 + p2, v4);
    let v6: i32 = select(p1, v5, (v5 < p1));
    let v7: i32 = (v6 + p2);
    let stop: i32 = select(p1, v7, (v7 < p1));
    var low: i32 = v6;
    var high: i32 = stop;
    let v8: i32 = (i / p1);
    let v9: i32 = (v8 * p1);
    for (var s: i32 = 0; s < p3; s += 1) {
      if (low < high) {
        let middle: i32 = low + (high - low) / 2;
        let v10: i32 = (v9 + middle);
        let v11: f32 = X0[v10];
        let v12: u32 = (bitcast<u32>(v0) & 0x7fffffffu);
        let v13: bool = (v12 > 0x7f800000u);
        let v14: u32 = (bitcast<u32>(v11) & 0x7fffffffu);
        let v15: bool = (v14 > 0x7f800000u);
        let v16: u32 = (bitcast<u32>(v11) & 0x7fffffffu);
        let v17: bool = (v16 > 0x7f800000u);
        let v18: u32 = (bitcast<u32>(v0) & 0x7fffffffu);
        let v19: bool = (v18 > 0x7f800000u);
        let v20: bool = select(!((v11 < v0) || (v19 && !v17)), ((v0 < v11) || (v15 && !v13)), v4);
        low = select(low, middle + 1, v20);
        high = select(middle, high, v20);
      }
    }
    let v21: i32 = X1[i];
    let rank: i32 = select(v6, v3, v4) + (v1 - v3) + (low - v6);
    let v22: i32 = (v9 + rank);
    Y0[v22] = v0;
    Y1[v22] = v21;
  }
}

@group(0) @binding(0) var<storage, read_write> X0: array<f32>;
@group(0) @binding(1) var<storage, read_write> X1: array<i32>;
@group(0) @binding(2) var<storage, read_write> Y0: array<f32>;
@group(0) @binding(3) var<storage, read_write> Y1: array<i32>;
@group(0) @binding(4) var<uniform> P: array<vec4<i32>, 1>;
@compute @workgroup_size(64)
fn main_kernel(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) grid: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
  let p0: i32 = P[0].x;
  let p1: i32 = P[0].y;
  let p2: i32 = P[0].z;
  let p3: i32 = P[0].w;
  let i: i32 = ((i32(group.y) * i32(grid.x) + i32(group.x)) * 64 + i32(thread));
  if (i < p0) {
    let v0: f32 = X0[i];
    let v1: i32 = (i % p1);
    let v2: i32 = (v1 / p2);
    let v3: i32 = (v2 * p2);
    let v4: bool = ((v2 & 1) == 0);
    let v5: i32 = select(v3 - p2, v3 + p2, v4);
    let v6: i32 = select(p1, v5, (v5 < p1));
    let v7: i32 = (v6 + p2);
    let stop: i32 = select(p1, v7, (v7 < p1));
    var low: i32 = v6;
    var high: i32 = stop;
    let v8: i32 = (i / p1);
    let v9: i32 = (v8 * p1);
    for (var s: i32 = 0; s < p3; s += 1) {
      if (low < high) {
        let middle: i32 = low + (high - low) / 2;
        let v10: i32 = (v9 + middle);
        let v11: f32 = X0[v10];
        let v12: u32 = (bitcast<u32>(v0) & 0x7fffffffu);
        let v13: bool = (v12 > 0x7f800000u);
        let v14: u32 = (bitcast<u32>(v11) & 0x7fffffffu);
        let v15: bool = (v14 > 0x7f800000u);
        let v16: u32 = (bitcast<u32>(v11) & 0x7fffffffu);
        let v17: bool = (v16 > 0x7f800000u);
        let v18: u32 = (bitcast<u32>(v0) & 0x7fffffffu);
        let v19: bool = (v18 > 0x7f800000u);
        let v20: bool = select(!((v11 < v0) || (v19 && !v17)), ((v0 < v11) || (v15 && !v13)), v4);
        low = select(low, middle + 1, v20);
        high = select(middle, high, v20);
      }
    }
    let v21: i32 = X1[i];
    let rank: i32 = select(v6, v3, v4) + (v1 - v3) + (low - v6);
    let v22: i32 = (v9 + rank);
    Y0[v22] = v0;
    Y1[v22] = v21;
  }
}

@group(0) @binding(0) var<storage, read_write> X0: array<f32>;
@group(0) @binding(1) var<storage, read_write> X1: array<i32>;
@group(0) @binding(2) var<storage, read_write> Y0: array<f32>;
@group(0) @binding(3) var<storage, read_write> Y1: array<i32>;
@group(0) @binding(4) var<uniform> P: array<vec4<i32>, 1>;
@compute @workgroup_size(64)
fn main_kernel(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) grid: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
  let p0: i32 = P[0].x;
  let p1: i32 = P[0].y;
  let p2: i32 = P[0].z;
  let p3: i32 = P[0].w;
  let i: i32 = ((i32(group.y) * i32(grid.x) + i32(group.x)) * 64 + i32(thread));
  if (i < p0) {
    let v0: f32 = X0[i];
    let v1: i32 = (i % p1);
    let v2: i32 = (v1 / p2);
    let v3: i32 = (v2 * p2);
    let v4: bool = ((v2 & 1) == 0);
    let v5: i32 = select(v3 - p2, v3 + p2, v4);
    let v6: i32 = select(p1, v5, (v5 < p1));
    let v7: i32 = (v6 + p2);
    let stop: i32 = select(p1, v7, (v7 < p1));
    var low: i32 = v6;
    var high: i32 = stop;
    let v8: i32 = (i / p1);
    let v9: i32 = (v8 * p1);
    for (var s: i32 = 0; s < p3; s += 1) {
      if (low < high) {
        let middle: i32 = low + (high - low) / 2;
        let v10: i32 = (v9 + middle);
        let v11: f32 = X0[v10];
        let v12: u32 = (bitcast<u32>(v0) & 0x7fffffffu);
        let v13: bool = (v12 > 0x7f800000u);
        let v14: u32 = (bitcast<u32>(v11) & 0x7fffffffu);
        let v15: bool = (v14 > 0x7f800000u);
        let v16: u32 = (bitcast<u32>(v11) & 0x7fffffffu);
        let v17: bool = (v16 > 0x7f800000u);
        let v18: u32 = (bitcast<u32>(v0) & 0x7fffffffu);
        let v19: bool = (v18 > 0x7f800000u);
        let v20: bool = select(!((v11 < v0) || (v19 && !v17)), ((v0 < v11) || (v15 && !v13)), v4);
        low = select(low, middle + 1, v20);
        high = select(middle, high, v20);
      }
    }
    let v21: i32 = X1[i];
    let rank: i32 = select(v6, v3, v4) + (v1 - v3) + (low - v6);
    let v22: i32 = (v9 + rank);
    Y0[v22] = v0;
    Y1[v22] = v21;
  }
}

@group(0) @binding(0) var<storage, read_write> X0: array<f32>;
@group(0) @binding(1) var<storage, read_write> X1: array<i32>;
@group(0) @binding(2) var<storage, read_write> Y0: array<f32>;
@group(0) @binding(3) var<storage, read_write> Y1: array<i32>;
@group(0) @binding(4) var<uniform> P: array<vec4<i32>, 1>;
@compute @workgroup_size(64)
fn main_kernel(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) grid: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
  let p0: i32 = P[0].x;
  let p1: i32 = P[0].y;
  let p2: i32 = P[0].z;
  let p3: i32 = P[0].w;
  let i: i32 = ((i32(group.y) * i32(grid.x) + i32(group.x)) * 64 + i32(thread));
  if (i < p0) {
    let v0: f32 = X0[i];
    let v1: i32 = (i % p1);
    let v2: i32 = (v1 / p2);
    let v3: i32 = (v2 * p2);
    let v4: bool = ((v2 & 1) == 0);
    let v5: i32 = select(v3 - p2, v3 + p2, v4);
    let v6: i32 = select(p1, v5, (v5 < p1));
    let v7: i32 = (v6 + p2);
    let stop: i32 = select(p1, v7, (v7 < p1));
    var low: i32 = v6;
    var high: i32 = stop;
    let v8: i32 = (i / p1);
    let v9: i32 = (v8 * p1);
    for (var s: i32 = 0; s < p3; s += 1) {
      if (low < high) {
        let middle: i32 = low + (high - low) / 2;
        let v10: i32 = (v9 + middle);
        let v11: f32 = X0[v10];
        let v12: u32 = (bitcast<u32>(v0) & 0x7fffffffu);
        let v13: bool = (v12 > 0x7f800000u);
        let v14: u32 = (bitcast<u32>(v11) & 0x7fffffffu);
        let v15: bool = (v14 > 0x7f800000u);
        let v16: u32 = (bitcast<u32>(v11) & 0x7fffffffu);
        let v17: bool = (v16 > 0x7f800000u);
        let v18: u32 = (bitcast<u32>(v0) & 0x7fffffffu);
        let v19: bool = (v18 > 0x7f800000u);
        let v20: bool = select(!((v11 < v0) || (v19 && !v17)), ((v0 < v11) || (v15 && !v13)), v4);
        low = select(low, middle + 1, v20);
        high = select(middle, high, v20);
      }
    }
    let v21: i32 = X1[i];
    let rank: i32 = select(v6, v3, v4) + (v1 - v3) + (low - v6);
    let v22: i32 = (v9 + rank);
    Y0[v22] = v0;
    Y1[v22] = v21;
  }
}

@group(0) @binding(0) var<storage, read_write> X0: array<f32>;
@group(0) @binding(1) var<storage, read_write> X1: array<i32>;
@group(0) @binding(2) var<storage, read_write> Y0: array<f32>;
@group(0) @binding(3) var<storage, read_write> Y1: array<i64>;
@group(0) @binding(4) var<uniform> P: array<vec4<i32>, 1>;
@compute @workgroup_size(64)
fn main_kernel(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) grid: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
  let p0: i32 = P[0].x;
  let p1: i32 = P[0].y;
  let p2: i32 = P[0].z;
  let p3: i32 = P[0].w;
  let i: i32 = ((i32(group.y) * i32(grid.x) + i32(group.x)) * 64 + i32(thread));
  if (i < p0) {
    let v0: f32 = X0[i];
    let v1: i32 = (i % p1);
    let v2: i32 = (v1 / p2);
    let v3: i32 = (v2 * p2);
    let v4: bool = ((v2 & 1) == 0);
    let v5: i32 = select(v3 - p2, v3 + p2, v4);
    let v6: i32 = select(p1, v5, (v5 < p1));
    let v7: i32 = (v6 + p2);
    let stop: i32 = select(p1, v7, (v7 < p1));
    var low: i32 = v6;
    var high: i32 = stop;
    let v8: i32 = (i / p1);
    let v9: i32 = (v8 * p1);
    for (var s: i32 = 0; s < p3; s += 1) {
      if (low < high) {
        let middle: i32 = low + (high - low) / 2;
        let v10: i32 = (v9 + middle);
        let v11: f32 = X0[v10];
        let v12: u32 = (bitcast<u32>(v0) & 0x7fffffffu);
        let v13: bool = (v12 > 0x7f800000u);
        let v14: u32 = (bitcast<u32>(v11) & 0x7fffffffu);
        let v15: bool = (v14 > 0x7f800000u);
        let v16: u32 = (bitcast<u32>(v11) & 0x7fffffffu);
        let v17: bool = (v16 > 0x7f800000u);
        let v18: u32 = (bitcast<u32>(v0) & 0x7fffffffu);
        let v19: bool = (v18 > 0x7f800000u);
        let v20: bool = select(!((v11 < v0) || (v19 && !v17)), ((v0 < v11) || (v15 && !v13)), v4);
        low = select(low, middle + 1, v20);
        high = select(middle, high, v20);
      }
    }
    let v21: i32 = X1[i];
    let rank: i32 = select(v6, v3, v4) + (v1 - v3) + (low - v6);
    let v22: i32 = (v9 + rank);
    Y0[v22] = v0;
    Y1[v22] = (i64(u64(bitcast<u32>(v21) ^ 0x80000000u)) - 2147483648li);
  }
}

@group(0) @binding(0) var<storage, read_write> X0: array<i64>;
@group(0) @binding(1) var<storage, read_write> Y0: array<i64>;
@group(0) @binding(2) var<uniform> P: array<vec4<i32>, 1>;
@compute @workgroup_size(64)
fn main_kernel(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) grid: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
  let p0: i32 = P[0].x;
  let i: i32 = ((i32(group.y) * i32(grid.x) + i32(group.x)) * 64 + i32(thread));
  if (i < p0) {
    let v0: i64 = X0[i];
    Y0[i] = v0;
  }
}
