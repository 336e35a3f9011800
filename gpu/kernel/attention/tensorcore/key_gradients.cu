// key_gradients computes dk if WITH_K, and dv if WITH_V, of a block of keys. The rows of scores are keys and the columns queries, so that
// weights and score gradients go from one product to the next in registers. With several SLICES, a block computes some columns of the
// gradients only.
INLINE void key_gradients(const problem &a) {
  const u32 kv_heads = a.heads / a.group, slice = (blockIdx.y * gridDim.x + blockIdx.x) % SLICES;
  const place at = place_of(a, kv_heads, false, SLICES);
  if (at.none) return;
  const u32 lane = threadIdx.x % 32, row_of_warp = at.row0 + threadIdx.x / 32 * ROWS_OF_WARP, row = row_of_warp + lane / 4;
  const u32 row_of_group = row_of_warp / ROWS_TOGETHER * ROWS_TOGETHER;
  const rows k = head_of(a.k, at.batch, at.head), v = head_of(a.v, at.batch, at.head);
  constexpr int Q_BYTES = tile_bytes<SPAN, DP>(), G_BYTES = tile_bytes<SPAN, VP>();
  const u32 k_tile = shared_memory(), v_tile = k_tile + tile_bytes<ROWS, DP>(), q_tiles = v_tile + tile_bytes<ROWS, VP>(), g_tiles = q_tiles + 2 * Q_BYTES;
  constexpr int KC = padded_to((DP + SLICES - 1) / SLICES), VC = padded_to((VP + SLICES - 1) / SLICES); // columns of a block
  constexpr int KN = WITH_K ? KC / 8 : 2, VN = WITH_V ? VC / 8 : 2;
  const int k_column = slice * KC, v_column = slice * VC;

  const u32 first_tile = CAUSAL ? at.row0 / SPAN : 0, tiles = (a.queries + SPAN - 1) / SPAN;
  u32 left_over = tiles > first_tile ? (tiles - first_tile) * a.group : 0;
  u32 member = at.head * a.group, query0 = first_tile * SPAN; // of the tile that is loaded
  rows q = head_of(a.q, at.batch, member), g = head_of(a.g, at.batch, member);
  u32 turn = 0;
  load<ROWS, DIM, K_VECTORS>(k_tile, k, at.row0, a.keys);
  load<ROWS, VALUE, V_VECTORS>(v_tile, v, at.row0, a.keys);
  if (left_over > 0) {
    load<SPAN, DIM, Q_VECTORS>(q_tiles, q, query0, a.queries);
    load<SPAN, VALUE, G_VECTORS>(g_tiles, g, query0, a.queries);
  }
  loaded();
  left<DP> x;
  x.open(k_tile);
  left<VP> y;
  y.open(v_tile);
  const float factor = a.scale * LOG2E;
  float dk[TILES][KN][4] = {}, dv[TILES][VN][4] = {};

  for (u32 i = 0; i < left_over; i++, turn ^= 1) {
    if (i > 0) loaded();
    const u32 start = query0;
    const u64 stack = at.batch * a.heads + member, mask_at = at.batch * a.mask_batch + member * a.mask_head;
    const u64 drawn = (u64)(at.batch * a.all_heads + member) * a.queries;
    if (i + 1 < left_over) {
      query0 += SPAN;
      if (query0 >= a.queries) {
        query0 = first_tile * SPAN;
        member++;
        q = head_of(a.q, at.batch, member), g = head_of(a.g, at.batch, member);
      }
      load<SPAN, DIM, Q_VECTORS>(q_tiles + (turn ^ 1) * Q_BYTES, q, query0, a.queries);
      load<SPAN, VALUE, G_VECTORS>(g_tiles + (turn ^ 1) * G_BYTES, g, query0, a.queries);
    }
#pragma unroll 1
    for (int j = 0; j < SPAN; j += SLICE) {
      const u32 first = start + j;
      if (CAUSAL && first + SLICE <= row_of_group) continue;
      const u32 q_tile = q_tiles + turn * Q_BYTES, g_tile = g_tiles + turn * G_BYTES;
      float4 stats[SLICE / 8];
#pragma unroll
      for (int n = 0; n < SLICE / 8; n++) stats[n] = *(const float4 *)(a.stats + stack * a.padded + first + n * 8 + lane % 4 * 2);
      float s[TILES][SLICE / 8][4], d[TILES][SLICE / 8][4];
      begin();
      outer<SPAN>(s, x, q_tile, j);
      commit();
      if (WITH_K && ASYNC) {
        outer<SPAN>(d, y, g_tile, j);
        commit();
        finish<1>();
      } else {
        finish<0>();
      }
      settle(s);
      const bool edge = CAUSAL && row_of_warp + ROWS_OF_WARP - 1 > first;
      if (SCALED || edge) {
#pragma unroll
        for (int m = 0; m < TILES; m++)
#pragma unroll
          for (int n = 0; n < SLICE / 8; n++) adjust<true>(a, s[m][n], mask_at, row + m * 16, first + n * 8 + lane % 4 * 2, edge);
      }
      u32 bits[TILES][SLICE / 8];
#pragma unroll
      for (int m = 0; m < TILES; m++)
#pragma unroll
        for (int n = 0; n < SLICE / 8; n++) {
          if (DROPOUT) bits[m][n] = kept_across(a, drawn + first + n * 8, row_of_warp + m * 16);
#pragma unroll
          for (int e = 0; e < 4; e++) s[m][n][e] = weight_of(s[m][n][e], factor, e % 2 ? stats[n].z : stats[n].x);
        }
      u32 v_weights[SLICE / 16][TILES][4], k_weights[SLICE / 16][TILES][4];
      if (WITH_V) {
#pragma unroll
        for (int n = 0; n < SLICE / 8; n += 2) {
#pragma unroll
          for (int m = 0; m < TILES; m++) {
            if (DROPOUT) {
              float p[2][4];
#pragma unroll
              for (int e = 0; e < 8; e++) p[e / 4][e % 4] = bits[m][n + e / 4] >> e % 4 & 1 ? s[m][n + e / 4][e % 4] : 0.0f;
              weights(v_weights[n / 2][m], p[0], p[1]);
            } else {
              weights(v_weights[n / 2][m], s[m][n], s[m][n + 1]);
            }
          }
          if (!ASYNC) add<SPAN, VP>(dv, v_weights[n / 2], g_tile, j + n * 8, v_column);
        }
        if constexpr (ASYNC && WITH_V) {
          settle(v_weights);
          begin();
#pragma unroll
          for (int n = 0; n < SLICE / 16; n++) add<SPAN, VP>(dv, v_weights[n], g_tile, j + n * 16, 0);
          commit();
        }
      }
      if (WITH_K) {
        if (!ASYNC) outer<SPAN>(d, y, g_tile, j);
        finish<WITH_V ? 1 : 0>();
        settle(d);
#pragma unroll
        for (int n = 0; n < SLICE / 8; n += 2) {
#pragma unroll
          for (int m = 0; m < TILES; m++) {
#pragma unroll
            for (int e = 0; e < 8; e++) {
              const float4 of = stats[n + e / 4];
              float f = d[m][n + e / 4][e % 4];
              if (DROPOUT) f = bits[m][n + e / 4] >> e % 4 & 1 ? f * a.by : 0.0f;
              s[m][n + e / 4][e % 4] *= f - (e % 2 ? of.w : of.y);
            }
            weights(k_weights[n / 2][m], s[m][n], s[m][n + 1]);
          }
          if (!ASYNC) add<SPAN, DP>(dk, k_weights[n / 2], q_tile, j + n * 8, k_column);
        }
        if constexpr (ASYNC && WITH_K) {
          settle(k_weights);
          begin();
#pragma unroll
          for (int n = 0; n < SLICE / 16; n++) add<SPAN, DP>(dk, k_weights[n], q_tile, j + n * 16, 0);
          commit();
        }
      }
      finish<0>();
      if (WITH_K) settle(dk);
      if (WITH_V) settle(dv);
    }
  }
  float scale[TILES][2];
  loaded();
  if constexpr (WITH_K) {
#pragma unroll
    for (int m = 0; m < TILES; m++) scale[m][0] = scale[m][1] = a.scale;
    store<KN, DIM, DK_VECTORS>(head_of(a.dk, at.batch, at.head), at.row0, a.keys, k_column, dk, scale, k_tile);
  }
  if constexpr (WITH_V) {
    __syncthreads();
#pragma unroll
    for (int m = 0; m < TILES; m++) scale[m][0] = scale[m][1] = DROPOUT ? a.by : 1.0f;
    store<VN, VALUE, DV_VECTORS>(head_of(a.dv, at.batch, at.head), at.row0, a.keys, v_column, dv, scale, k_tile);
  }
}
