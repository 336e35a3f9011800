// key_gradients computes dk if WITH_K, and dv if WITH_V, of a block of keys. The rows of scores are keys and the columns queries, so that
// weights and score gradients go from one product to the next in registers. With several SLICES, a block computes some columns of the
// gradients only.
INLINE void key_gradients(const problem &a) {
  const u32 kv_heads = a.heads / a.group, slice = (blockIdx.y * gridDim.x + blockIdx.x) % SLICES;
  const place at = place_of(a, kv_heads, false, SLICES);
  if (at.none) return;
  const u32 lane = threadIdx.x % 32, row_of_warp = at.row0 + threadIdx.x / 32 * ROWS_OF_WARP, row = row_of_warp + lane / 4;
  const rows k = head_of(a.k, at.batch, at.head), v = head_of(a.v, at.batch, at.head);
  constexpr int Q_BYTES = SPAN * pitch(DP), G_BYTES = SPAN * pitch(VP);
  const u32 k_tile = shared_memory(), v_tile = k_tile + ROWS * pitch(DP), q_tiles = v_tile + ROWS * pitch(VP), g_tiles = q_tiles + 2 * Q_BYTES;
  constexpr int KC = padded_to((DP + SLICES - 1) / SLICES), VC = padded_to((VP + SLICES - 1) / SLICES); // columns of a block
  constexpr int KN = WITH_K ? KC / 8 : 2, VN = WITH_V ? VC / 8 : 2;
  constexpr bool PARTIAL = KC * SLICES != DP || VC * SLICES != VP;
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
  wait_all();
  __syncthreads();
  left<DP, HELD> x;
  x.open(k_tile);
  left<VP, HELD> y;
  y.open(v_tile);
  const float factor = a.scale * LOG2E;
  float dk[TILES][KN][4] = {}, dv[TILES][VN][4] = {};

  for (u32 i = 0; i < left_over; i++, turn ^= 1) {
    if (i > 0) {
      wait_all();
      __syncthreads();
    }
    const u32 start = query0;
    const u64 stack = at.batch * a.heads + member, mask_at = at.batch * a.mask_batch + member * a.mask_head;
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
      if (CAUSAL && first + SLICE <= row_of_warp) continue;
      const u32 q_tile = q_tiles + turn * Q_BYTES + j * pitch(DP), g_tile = g_tiles + turn * G_BYTES + j * pitch(VP);
      float4 stats[SLICE / 8];
#pragma unroll
      for (int n = 0; n < SLICE / 8; n++) stats[n] = *(const float4 *)(a.stats + stack * a.padded + first + n * 8 + lane % 4 * 2);
      float s[TILES][SLICE / 8][4] = {};
      outer(s, x, q_tile + lane_across(pitch(DP)));
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
          if (DROPOUT) bits[m][n] = kept_across(a, stack * a.queries + first + n * 8, row_of_warp + m * 16);
#pragma unroll
          for (int e = 0; e < 4; e++) s[m][n][e] = weight_of(s[m][n][e], factor, e % 2 ? stats[n].z : stats[n].x);
        }
      if (WITH_V) {
#pragma unroll
        for (int n = 0; n < SLICE / 8; n += 2) {
          u32 w[TILES][4];
#pragma unroll
          for (int m = 0; m < TILES; m++) {
            if (DROPOUT) {
              float p[2][4];
#pragma unroll
              for (int e = 0; e < 8; e++) p[e / 4][e % 4] = bits[m][n + e / 4] >> e % 4 & 1 ? s[m][n + e / 4][e % 4] : 0.0f;
              weights(w[m], p[0], p[1]);
            } else {
              weights(w[m], s[m][n], s[m][n + 1]);
            }
          }
          add<VN, PARTIAL>(dv, w, g_tile + n * 8 * pitch(VP) + v_column * 2 + lane_ahead(pitch(VP)), VP - v_column);
        }
      }
      if (WITH_K) {
        float d[TILES][SLICE / 8][4] = {};
        outer(d, y, g_tile + lane_across(pitch(VP)));
#pragma unroll
        for (int n = 0; n < SLICE / 8; n += 2) {
          u32 w[TILES][4];
#pragma unroll
          for (int m = 0; m < TILES; m++) {
#pragma unroll
            for (int e = 0; e < 8; e++) {
              const float4 of = stats[n + e / 4];
              float f = d[m][n + e / 4][e % 4];
              if (DROPOUT) f = bits[m][n + e / 4] >> e % 4 & 1 ? f * a.by : 0.0f;
              s[m][n + e / 4][e % 4] *= f - (e % 2 ? of.w : of.y);
            }
            weights(w[m], s[m][n], s[m][n + 1]);
          }
          add<KN, PARTIAL>(dk, w, q_tile + n * 8 * pitch(DP) + k_column * 2 + lane_ahead(pitch(DP)), DP - k_column);
        }
      }
    }
  }
  float scale[TILES][2];
  wait_all();
  __syncthreads();
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
