// forward computes the rows of o and lse of one block of queries. It visits keys tile by tile, as many at a time as SPAN says.
//
// The weights of a row are relative to a maximum that is not always the newest: o is only scaled down when a score exceeds it by so much
// that weights exceed 2^8.
INLINE void forward(const problem &a) {
  const place at = place_of(a, a.heads, CAUSAL, 1);
  if (at.none) return;
  const u32 lane = threadIdx.x % 32, row_of_warp = at.row0 + threadIdx.x / 32 * ROWS_OF_WARP, row = row_of_warp + lane / 4;
  const u32 row_of_group = row_of_warp / ROWS_TOGETHER * ROWS_TOGETHER;
  const rows q = head_of(a.q, at.batch, at.head), k = head_of(a.k, at.batch, at.head / a.group);
  const rows v = head_of(a.v, at.batch, at.head / a.group), o = head_of(a.o, at.batch, at.head);
  const u64 stack = at.batch * a.heads + at.head, mask_at = at.batch * a.mask_batch + at.head * a.mask_head;
  const u64 drawn = (u64)(at.batch * a.all_heads + at.head) * a.queries;
  const u32 end = CAUSAL ? min(a.keys, at.row0 + ROWS) : a.keys;
  constexpr int K_BYTES = tile_bytes<SPAN, DP>(), V_BYTES = tile_bytes<SPAN, VP>();
  const u32 q_tile = shared_memory(), k_tiles = q_tile + tile_bytes<ROWS, DP>(), v_tiles = k_tiles + 2 * K_BYTES;

  load<ROWS, DIM, Q_VECTORS>(q_tile, q, at.row0, a.queries);
  load<SPAN, DIM, K_VECTORS>(k_tiles, k, 0, a.keys);
  load<SPAN, VALUE, V_VECTORS>(v_tiles, v, 0, a.keys);
  loaded();
  left<DP> x;
  x.open(q_tile);

  const float factor = SCALED ? 1.0f : a.scale * LOG2E;
  float sum[TILES][VP / 8][4] = {}, most[TILES][2], total[TILES][2] = {};
#pragma unroll
  for (int m = 0; m < TILES; m++) most[m][0] = most[m][1] = -INFINITE;

  u32 turn = 0;
  for (u32 key0 = 0; key0 < end; key0 += SPAN, turn ^= 1) {
    if (key0 > 0) loaded();
    if (key0 + SPAN < end) {
      load<SPAN, DIM, K_VECTORS>(k_tiles + (turn ^ 1) * K_BYTES, k, key0 + SPAN, a.keys);
      load<SPAN, VALUE, V_VECTORS>(v_tiles + (turn ^ 1) * V_BYTES, v, key0 + SPAN, a.keys);
    }
    if (CAUSAL && key0 >= row_of_group + ROWS_TOGETHER) continue;
    float s[TILES][SPAN / 8][4];
    begin();
    outer<SPAN>(s, x, k_tiles + turn * K_BYTES, 0);
    commit();
    finish<0>();
    settle(s);
    const bool edge = key0 + SPAN > a.keys || (CAUSAL && key0 + SPAN - 1 > row_of_warp);
    if (SCALED || edge) {
#pragma unroll
      for (int m = 0; m < TILES; m++)
#pragma unroll
        for (int n = 0; n < SPAN / 8; n++) adjust<false>(a, s[m][n], mask_at, row + m * 16, key0 + n * 8 + lane % 4 * 2, edge);
    }

    float next[TILES][2];
    bool risen = false;
#pragma unroll
    for (int m = 0; m < TILES; m++)
#pragma unroll
      for (int i = 0; i < 2; i++) {
        float y = most[m][i];
#pragma unroll
        for (int n = 0; n < SPAN / 8; n++) y = fmaxf(y, fmaxf(s[m][n][2 * i], s[m][n][2 * i + 1]));
        y = fmaxf(y, __shfl_xor_sync(~0u, y, 1));
        next[m][i] = fmaxf(y, __shfl_xor_sync(~0u, y, 2));
        risen |= (next[m][i] - most[m][i]) * factor > 8.0f;
      }
    if (__any_sync(~0u, risen)) {
#pragma unroll
      for (int m = 0; m < TILES; m++)
#pragma unroll
        for (int i = 0; i < 2; i++) {
          float shrunk = next[m][i] == -INFINITE ? 0.0f : exp2_((most[m][i] - next[m][i]) * (SCALED ? LOG2E : factor));
          most[m][i] = next[m][i];
          total[m][i] *= shrunk;
#pragma unroll
          for (int n = 0; n < VP / 8; n++) sum[m][n][2 * i] *= shrunk, sum[m][n][2 * i + 1] *= shrunk;
        }
    }
#pragma unroll
    for (int m = 0; m < TILES; m++)
#pragma unroll
      for (int i = 0; i < 2; i++) {
        const float of_row = most[m][i] == -INFINITE ? 0.0f : most[m][i] * factor;
        float t = 0.0f;
#pragma unroll
        for (int n = 0; n < SPAN / 8; n++)
#pragma unroll
          for (int j = 2 * i; j < 2 * i + 2; j++) {
            s[m][n][j] = weight_of(s[m][n][j], factor, of_row);
            t += s[m][n][j];
          }
        total[m][i] += t;
      }

    u32 w[SPAN / 16][TILES][4];
#pragma unroll
    for (int n = 0; n < SPAN / 8; n += 2) {
#pragma unroll
      for (int m = 0; m < TILES; m++) {
        if (DROPOUT) {
          const u32 bits = kept(a, drawn + row + m * 16, key0 + n * 8);
#pragma unroll
          for (int j = 0; j < 8; j++)
            if (!(bits >> j & 1)) s[m][n + j / 4][j % 4] = 0.0f;
        }
        weights(w[n / 2][m], s[m][n], s[m][n + 1]);
      }
      if (!ASYNC) add<SPAN, VP>(sum, w[n / 2], v_tiles + turn * V_BYTES, n * 8, 0);
    }
    if (ASYNC) {
      settle(sum);
      settle(w);
      begin();
#pragma unroll
      for (int n = 0; n < SPAN / 16; n++) add<SPAN, VP>(sum, w[n], v_tiles + turn * V_BYTES, n * 16, 0);
      commit();
      finish<0>();
      settle(sum);
    }
  }

  float scale[TILES][2];
#pragma unroll
  for (int m = 0; m < TILES; m++)
#pragma unroll
    for (int i = 0; i < 2; i++) {
      float t = total[m][i];
      t += __shfl_xor_sync(~0u, t, 1);
      t += __shfl_xor_sync(~0u, t, 2);
      scale[m][i] = t == 0.0f ? 0.0f : (DROPOUT ? a.by : 1.0f) / t;
      const u32 r = row + m * 16 + i * 8;
      if (lane % 4 == 0 && r < a.queries) {
        float lse = SCALED ? most[m][i] : most[m][i] * a.scale;
        a.lse[stack * a.queries + r] = most[m][i] == -INFINITE ? INFINITE : lse + logf(t);
      }
    }
  loaded();
  store<VP / 8, VALUE, O_VECTORS>(o, at.row0, a.queries, 0, sum, scale, q_tile);
}
