// query_gradients writes stats of a block of queries, and then computes their dq if WITH_Q. It visits keys tile by tile, and the keys of a
// tile in slices, so that few scores are in registers.
INLINE void query_gradients(const problem &a) {
  const place at = place_of(a, a.heads, CAUSAL, 1);
  if (at.none) return;
  const u32 lane = threadIdx.x % 32, row_of_warp = at.row0 + threadIdx.x / 32 * ROWS_OF_WARP, row = row_of_warp + lane / 4;
  const u32 row_of_group = row_of_warp / ROWS_TOGETHER * ROWS_TOGETHER;
  const rows q = head_of(a.q, at.batch, at.head), k = head_of(a.k, at.batch, at.head / a.group);
  const rows v = head_of(a.v, at.batch, at.head / a.group), g = head_of(a.g, at.batch, at.head);
  const u64 stack = at.batch * a.heads + at.head, mask_at = at.batch * a.mask_batch + at.head * a.mask_head;
  const u64 drawn = (u64)(at.batch * a.all_heads + at.head) * a.queries;
  const u32 end = CAUSAL ? min(a.keys, at.row0 + ROWS) : a.keys;
  constexpr int K_BYTES = tile_bytes<SPAN, DP>(), V_BYTES = tile_bytes<SPAN, VP>();
  const u32 q_tile = shared_memory(), g_tile = q_tile + tile_bytes<ROWS, DP>(), k_tiles = g_tile + tile_bytes<ROWS, VP>(), v_tiles = k_tiles + 2 * K_BYTES;

  if (WITH_Q) {
    load<ROWS, DIM, Q_VECTORS>(q_tile, q, at.row0, a.queries);
    load<ROWS, VALUE, G_VECTORS>(g_tile, g, at.row0, a.queries);
    load<SPAN, DIM, K_VECTORS>(k_tiles, k, 0, a.keys);
    load<SPAN, VALUE, V_VECTORS>(v_tiles, v, 0, a.keys);
  }
  const rows o = head_of(a.o, at.batch, at.head);
  float2 *stats = a.stats + stack * a.padded;
  for (u32 r = row_of_warp + lane / 8; r < row_of_warp + ROWS_OF_WARP; r += 4) {
    float sum = 0.0f;
    if (r < a.queries) {
      const u16 *x = o.at + r * o.row, *y = g.at + r * g.row;
      if constexpr (O_VECTORS && G_VECTORS) {
        for (u32 c = lane % 8; c < VALUE / 8; c += 8) {
          const uint4 u = ((const uint4 *)x)[c], w = ((const uint4 *)y)[c];
          const u32 m[4] = {u.x, u.y, u.z, u.w}, n[4] = {w.x, w.y, w.z, w.w};
#pragma unroll
          for (int i = 0; i < 4; i++) {
            sum = fmaf(unpack((u16)m[i]), unpack((u16)n[i]), sum);
            sum = fmaf(unpack((u16)(m[i] >> 16)), unpack((u16)(n[i] >> 16)), sum);
          }
        }
      } else {
        for (u32 c = lane % 8 * 8; c < VALUE; c += 64) // the same order
          for (u32 j = c; j < min(c + 8, VALUE); j++) sum = fmaf(unpack(x[j]), unpack(y[j]), sum);
      }
    }
#pragma unroll
    for (int i = 1; i < 8; i *= 2) sum += __shfl_xor_sync(~0u, sum, i);
    if (lane % 8 == 0) {
      float2 both;
      both.x = r < a.queries ? a.lse[stack * a.queries + r] * (SCALED ? 1.0f : LOG2E) : INFINITE;
      both.y = sum;
      stats[r] = both;
    }
  }
  if (!WITH_Q) return;
  __syncwarp();
  float2 of_row[TILES][2];
#pragma unroll
  for (int m = 0; m < TILES; m++)
#pragma unroll
    for (int i = 0; i < 2; i++) of_row[m][i] = stats[row + m * 16 + i * 8];

  loaded();
  left<DP> x;
  x.open(q_tile);
  left<VP> y;
  y.open(g_tile);
  const float factor = a.scale * LOG2E;
  float sum[TILES][DP / 8][4] = {};
  u32 turn = 0;
  for (u32 key0 = 0; key0 < end; key0 += SPAN, turn ^= 1) {
    if (key0 > 0) loaded();
    if (key0 + SPAN < end) {
      load<SPAN, DIM, K_VECTORS>(k_tiles + (turn ^ 1) * K_BYTES, k, key0 + SPAN, a.keys);
      load<SPAN, VALUE, V_VECTORS>(v_tiles + (turn ^ 1) * V_BYTES, v, key0 + SPAN, a.keys);
    }
#pragma unroll 1
    for (int j = 0; j < SPAN; j += SLICE) {
      const u32 first = key0 + j;
      if (CAUSAL && first >= row_of_group + ROWS_TOGETHER) break;
      const u32 k_tile = k_tiles + turn * K_BYTES;
      float s[TILES][SLICE / 8][4], d[TILES][SLICE / 8][4];
      begin();
      outer<SPAN>(s, x, k_tile, j);
      commit();
      outer<SPAN>(d, y, v_tiles + turn * V_BYTES, j);
      commit();
      finish<1>();
      settle(s);
      const bool edge = first + SLICE > a.keys || (CAUSAL && first + SLICE - 1 > row_of_warp);
      if (SCALED || edge) {
#pragma unroll
        for (int m = 0; m < TILES; m++)
#pragma unroll
          for (int n = 0; n < SLICE / 8; n++) adjust<false>(a, s[m][n], mask_at, row + m * 16, first + n * 8 + lane % 4 * 2, edge);
      }
#pragma unroll
      for (int m = 0; m < TILES; m++)
#pragma unroll
        for (int n = 0; n < SLICE / 8; n++)
#pragma unroll
          for (int i = 0; i < 4; i++) s[m][n][i] = weight_of(s[m][n][i], factor, of_row[m][i / 2].x);
      finish<0>();
      settle(d);
      u32 w[SLICE / 16][TILES][4];
#pragma unroll
      for (int n = 0; n < SLICE / 8; n += 2) {
#pragma unroll
        for (int m = 0; m < TILES; m++) {
          const u32 bits = DROPOUT ? kept(a, drawn + row + m * 16, first + n * 8) : 0;
#pragma unroll
          for (int i = 0; i < 8; i++) {
            float f = d[m][n + i / 4][i % 4];
            if (DROPOUT) f = bits >> i & 1 ? f * a.by : 0.0f;
            s[m][n + i / 4][i % 4] *= f - of_row[m][i / 2 % 2].y;
          }
          weights(w[n / 2][m], s[m][n], s[m][n + 1]);
        }
        if (!ASYNC) add<SPAN, DP>(sum, w[n / 2], k_tile, j + n * 8, 0);
      }
      if (ASYNC) {
        settle(w);
        begin();
#pragma unroll
        for (int n = 0; n < SLICE / 16; n++) add<SPAN, DP>(sum, w[n], k_tile, j + n * 16, 0);
        commit();
        finish<0>();
        settle(sum);
      }
    }
  }
  float scale[TILES][2];
#pragma unroll
  for (int m = 0; m < TILES; m++) scale[m][0] = scale[m][1] = a.scale;
  loaded();
  store<DP / 8, DIM, DQ_VECTORS>(head_of(a.dq, at.batch, at.head), at.row0, a.queries, 0, sum, scale, q_tile);
}
