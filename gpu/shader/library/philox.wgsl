// Random words by Philox4x32-10, with the same counters as on the CPU.

fn plait_philox(seed: vec2<u32>, counter: vec2<u32>) -> vec4<u32> {
  var k = seed;
  var c = vec4<u32>(counter, 0u, 0u);
  for (var i = 0u; i < 10u; i++) {
    let a = plait_wide(c.x, 0xD2511F53u);
    let b = plait_wide(c.z, 0xCD9E8D57u);
    c = vec4<u32>(b.y ^ c.y ^ k.x, b.x, a.y ^ c.w ^ k.y, a.x);
    k = k + vec2<u32>(0x9E3779B9u, 0xBB67AE85u);
  }
  return c;
}
fn plait_uniform(w: u32) -> f32 { return f32(w >> 8u) * 5.9604644775390625e-8; }
fn plait_uniform_open(w: u32) -> f32 {
  return f32(w >> 16u) * 1.52587890625e-5 + (f32(w & 0xffffu) + 0.5) * 2.3283064365386963e-10;
}
fn plait_normal_pair(a: u32, b: u32) -> vec2<f32> {
  let radius = sqrt(-2.0 * plait_log_f32(plait_uniform_open(a)));
  let t = 4.0 * plait_uniform(b);
  var q: plait_quadrant;
  q.rest = (t - round(t)) * 1.57079633;
  q.number = i32(round(t));
  return vec2<f32>(radius * plait_circular(q, 1), radius * plait_circular(q, 0));
}
fn plait_negative_log(w: u32) -> f32 { return -plait_log_f32(min(plait_uniform_open(w), 0.99999994)); }
