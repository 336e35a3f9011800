// Scaled dot product attention that never stores the score matrix.
#ifndef PLAITK_ATTENTION_H
#define PLAITK_ATTENTION_H

#include <stdint.h>

#include "../../../include/plait_pool.h"

// A [batch, heads, length, dim] tensor with a last stride of 1. Strides are in elements.
struct plaitk_attention_view {
  const void *data;
  int64_t batch, head, row;
};

struct plaitk_attention {
  int dtype;
  int64_t batch, heads, kv_heads;  // kv_heads divides heads: query head h reads key head h / (heads / kv_heads)
  int64_t queries, keys, dim, value_dim;
  double scale;
  int causal;  // query i sees keys 0..i
  // The mask: PLAIT_BOOL (true keys are attended), a floating dtype (added to the scores), or -1 for none. Any strides.
  int mask_dtype;
  const void *mask;
  int64_t mask_batch, mask_head, mask_query, mask_key;
  // Dropout keeps a weight, times keep_scale, if its word of the generator is below keep_limit. The word's index is
  // ((batch*all_heads + head)*queries + query)*K + key, where K is keys rounded up to a multiple of 4, and all_heads may
  // be more than heads: those of a tensor that this is a part of.
  int dropout;
  int64_t all_heads;
  uint64_t seed, offset, keep_limit;
  double keep_scale;
  struct plaitk_attention_view q, k, v;
};

// o [batch, heads, queries, value_dim] = softmax(q k' scale + mask) v. lse [batch, heads, queries], in float32 or
// float64, is the log-sum-exp of each query's scores. A query without any unmasked key gets 0 and an lse of +inf.
void plaitk_attention_forward(plait_pool *pool, const struct plaitk_attention *a, struct plaitk_attention_view o,
                              void *lse, void *scratch);
int64_t plaitk_attention_forward_scratch(const struct plaitk_attention *a);

// Writes the gradients. Those with NULL data are not computed.
void plaitk_attention_backward(plait_pool *pool, const struct plaitk_attention *a, struct plaitk_attention_view o,
                               const void *lse, struct plaitk_attention_view d_o, struct plaitk_attention_view dq,
                               struct plaitk_attention_view dk, struct plaitk_attention_view dv, void *scratch);
int64_t plaitk_attention_backward_scratch(const struct plaitk_attention *a);

enum plaitk_attention_isa {
  PLAITK_ATTENTION_BASE,
  PLAITK_ATTENTION_V3,
  PLAITK_ATTENTION_V4,
  PLAITK_ATTENTION_TILES,  // V4, and tiles of bfloat16 where products have them
};

// Sets the newest instruction set that kernels may use. For tests, while no kernel runs.
void plaitk_attention_limit(int isa);

#endif
