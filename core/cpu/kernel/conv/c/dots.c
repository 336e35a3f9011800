// The gradient of the weight.
#include "passes.h"
#include "lattice.h"
#include "../../../include/plait_slots.h"

#define min plaitk_conv_min
#define max plaitk_conv_max
#define ceil_div plaitk_conv_ceil
#define round_up plaitk_conv_round

#define CHUNK_WORK ((double)(1 << 19))
#define CHUNKS 32
#define POSITIONS 1024
#define COPY_ELEMENTS (128 << 10)
#define PARTIAL_BYTES (16 << 20)
#define TILE_PAD 16
#define NEAR_BYTES (24 << 10)

typedef struct {
  const plaitk_conv_micro *micro;
  const plaitk_conv_io *io;
  plaitk_conv_lattice lattice;
  int64_t groups, rows, channels, taps;  // rows and channels are those of one group
  int64_t out[3], out_plane;
  int64_t *koff;
  // A chunk sums over one segment of the blocks, for some groups, rows and channels. Each segment has its own sums;
  // they are added in order at the end.
  int64_t segments, group_block, group_blocks, row_block, row_blocks, channel_block, channel_blocks;
  int64_t weights;       // number of elements of the result
  char *partial;
  plait_slots slots;
  int64_t copy_bytes, dy_bytes;
  const void *x, *dy;
  void *dw;
} job;

static int64_t plan(job *j, const plaitk_conv_shape *s, int64_t threads, char *scratch) {
  char *at = scratch;
  j->io = plaitk_conv_io_for(s->dtype);
  j->micro = plaitk_conv_micro_for(s->dtype == PLAIT_F64);
  int lanes = j->micro->lanes;
  plaitk_conv_lattice *l = &j->lattice;
  j->groups = s->groups;
  j->rows = s->cout / s->groups;
  j->channels = s->cin / s->groups;
  j->taps = s->kernel[0] * s->kernel[1] * s->kernel[2];
  memcpy(j->out, s->out, sizeof j->out);
  j->out_plane = s->out[0] * s->out[1] * s->out[2];
  j->weights = s->groups * j->rows * j->channels * j->taps;
  plaitk_conv_lattice_forward(l, s);

  j->row_block = min(j->rows, 64);
  plaitk_conv_lattice_cut(l, j->channels, s->n, j->row_block, lanes, POSITIONS, COPY_ELEMENTS, 1);
  if (l->mode == CONV_PACKED) j->row_block = min(j->rows, 128);
  // If a copy is too large, or holds only a few positions, split its channels: they are independent.
  j->channel_blocks = 1;
  while (j->channel_blocks < j->channels &&
         (l->copy > COPY_ELEMENTS || l->vectors * lanes < min(POSITIONS / 2, s->n * j->out_plane))) {
    j->channel_blocks *= 2;
    plaitk_conv_lattice_cut(l, ceil_div(j->channels, j->channel_blocks), s->n, j->row_block, lanes, POSITIONS,
                            COPY_ELEMENTS, 1);
  }
  j->channel_block = l->channels;
  j->channel_blocks = ceil_div(j->channels, j->channel_block);
  j->row_blocks = ceil_div(j->rows, j->row_block);

  int64_t blocks = plaitk_conv_lattice_blocks(l);
  int64_t most = max(1, PARTIAL_BYTES / (j->weights * j->io->compute_size));
  most = min(min(most, blocks), CHUNKS);
  j->segments = min(most, ceil_div(CHUNKS, j->groups * j->row_blocks * j->channel_blocks));
  double work = (double)blocks / (double)j->segments * l->vectors * lanes * j->row_block * l->k;
  while (j->segments * j->groups * j->row_blocks * j->channel_blocks < CHUNKS && j->row_block > 16 &&
         work > 2 * CHUNK_WORK) {
    j->row_block = round_up(j->row_block / 2, 4);
    j->row_blocks = ceil_div(j->rows, j->row_block);
    work /= 2;
  }
  while (j->segments > 1 && work * 2 < CHUNK_WORK) {
    j->segments = (j->segments + 1) / 2;
    work *= 2;
  }
  j->group_block = work >= CHUNK_WORK ? 1 : min(j->groups, (int64_t)(CHUNK_WORK / work) + 1);
  j->group_blocks = ceil_div(j->groups, j->group_block);

  j->koff = plait_carve(&at, (l->k + TILE_PAD) * (int64_t)sizeof(int64_t));
  if (scratch) {
    plaitk_conv_lattice_koff(l, j->koff);
    memset(j->koff + l->k, 0, TILE_PAD * sizeof(int64_t));
  }
  // With one segment and no conversion, the sums are made in the result.
  int direct = j->segments == 1 && j->io->size == j->io->compute_size;
  j->partial = direct ? j->dw : plait_carve(&at, j->segments * j->weights * j->io->compute_size);
  j->copy_bytes = round_up(l->copy * j->io->compute_size, PLAIT_SLOT_ALIGN);
  j->dy_bytes = round_up(round_up(j->row_block, 4) * l->vectors * lanes * j->io->compute_size, PLAIT_SLOT_ALIGN);
  int64_t size = j->copy_bytes + j->dy_bytes + round_up(l->vectors * (int64_t)sizeof(int64_t), PLAIT_SLOT_ALIGN);
  plait_slots_plan(&j->slots, &at, max(1, min(threads, j->segments * j->group_blocks * j->row_blocks * j->channel_blocks)), size, scratch != NULL);
  return (int64_t)((intptr_t)at - (intptr_t)scratch);
}

// Reports whether rows of dy have the layout of the block's positions, so that no copy is needed.
static int in_place(const job *j, const plaitk_conv_block *b, int64_t rows) {
  int lanes = j->micro->lanes;
  if (j->io->size != j->io->compute_size || b->nb != 1 || b->n[2] != j->out[2]) return 0;
  if (b->n[0] != 1 && b->n[1] != j->out[1]) return 0;
  if (j->lattice.mode == CONV_ROWS ? b->n[2] % lanes != 0 : b->pitch[0] % lanes != 0) return 0;
  return rows == 1 || rows % j->micro->dots[0].rows == 0;
}

// Copies rows of dy, with zeros for positions that do not exist.
static void copy_dy(const job *j, const plaitk_conv_block *b, int64_t channel, int64_t rows, char *dst) {
  int64_t size = j->io->compute_size, lanes = j->micro->lanes, ld = b->vectors * lanes, end = b->nb * b->pitch[0];
  plaitk_conv_box box = {.pitch = {b->pitch[1], b->pitch[2]}, .width = b->pitch[2]};
  for (int d = 0; d < 3; d++) {
    box.size[d] = j->out[d];
    box.start[d] = b->q0[d];
    box.step[d] = 1;
    box.n[d] = b->n[d];
  }
  for (int64_t r = 0; r < rows; r++, dst += ld * size) {
    for (int64_t i = 0; i < b->nb; i++) {
      int64_t plane = ((b->b0 + i) * j->groups * j->rows + channel + r) * j->out_plane;
      j->io->fill(dst + i * b->pitch[0] * size, (const char *)j->dy + plane * j->io->size, &box);
    }
    memset(dst + end * size, 0, (size_t)((ld - end) * size));
  }
}

// Adds the products of rows of dy with the copy at all k offsets.
static void multiply(const job *j, const plaitk_conv_block *b, const char *dy, int64_t ldy, const char *copy,
                     const int64_t *base, char *sums, int64_t rows, int64_t k) {
  const plaitk_conv_micro *micro = j->micro;
  int64_t size = j->io->compute_size, ldw = j->channels * j->taps;
  if (rows == 1) {
    for (int64_t n = 0; n < k; n += micro->dots[1].cols) {
      micro->dots[1].fn(b->vectors, dy, ldy, copy, base, j->koff + n, sums + n * size, ldw, 1,
                        min(micro->dots[1].cols, k - n));
    }
    return;
  }
  int tall = micro->dots[0].rows, wide = micro->dots[0].cols;
  for (int64_t n = 0; n < k; n += wide) {
    for (int64_t m = 0; m < rows; m += tall) {
      micro->dots[0].fn(b->vectors, dy + m * ldy * size, ldy, copy, base, j->koff + n, sums + (m * ldw + n) * size, ldw,
                        min(tall, rows - m), min(wide, k - n));
    }
  }
}

static void dots_chunk(void *arg, int64_t chunk) {
  const job *j = arg;
  const plaitk_conv_lattice *l = &j->lattice;
  int lanes = j->micro->lanes;
  int64_t size = j->io->compute_size;
  int64_t slot = plait_slot_acquire(&j->slots);
  char *copy = j->slots.bytes + slot * j->slots.size;
  char *dy_copy = copy + j->copy_bytes;
  int64_t *base = (int64_t *)(dy_copy + j->dy_bytes);

  int64_t c0 = chunk % j->channel_blocks * j->channel_block, c1 = min(c0 + j->channel_block, j->channels);
  chunk /= j->channel_blocks;
  int64_t m0 = chunk % j->row_blocks * j->row_block, m1 = min(m0 + j->row_block, j->rows);
  chunk /= j->row_blocks;
  int64_t g0 = chunk % j->group_blocks * j->group_block, g1 = min(g0 + j->group_block, j->groups);
  int64_t segment = chunk / j->group_blocks;
  int64_t blocks = plaitk_conv_lattice_blocks(l);
  int64_t first = segment * blocks / j->segments, last = (segment + 1) * blocks / j->segments;
  int64_t ldw = j->channels * j->taps, k = (c1 - c0) * j->taps;

  for (int64_t g = g0; g < g1; g++) {
    char *sums = j->partial + (segment * j->weights + (g * j->rows * j->channels + c0) * j->taps) * size;
    for (int64_t m = m0; m < m1; m++) memset(sums + m * ldw * size, 0, (size_t)(k * size));
    for (int64_t i = first; i < last; i++) {
      plaitk_conv_block b = plaitk_conv_lattice_block(l, i, lanes);
      if (g == g0 || last - first > 1) plaitk_conv_lattice_base(l, &b, lanes, base);
      plaitk_conv_lattice_fill(l, &b, j->io, j->x, g * j->channels + c0, c1 - c0, j->groups * j->channels, lanes, copy);
      const char *dy = dy_copy;
      int64_t ldy = b.vectors * lanes, channel = g * j->rows + m0;
      if (in_place(j, &b, m1 - m0)) {
        ldy = j->out_plane;
        dy = (const char *)j->dy + (((b.b0 * j->groups * j->rows + channel) * j->out[0] + b.q0[0]) * j->out[1] + b.q0[1]) *
                                       j->out[2] * size;
      } else {
        copy_dy(j, &b, channel, m1 - m0, dy_copy);
      }
      // The rows of dy that stay in the L1 cache while the copy passes.
      int tall = j->micro->dots[0].rows;
      int64_t near = max(1, NEAR_BYTES / (b.vectors * lanes * size) / tall) * tall;
      for (int64_t m = m0; m < m1; m += near) {
        multiply(j, &b, dy + (m - m0) * ldy * size, ldy, copy, base, sums + m * ldw * size, min(near, m1 - m), k);
      }
    }
  }
  plait_slot_release(&j->slots, slot);
}

#define SUM_BLOCK 4096

static void sum_chunk(void *arg, int64_t chunk) {
  const job *j = arg;
  int64_t i = chunk * SUM_BLOCK;
  j->io->sum((char *)j->dw + i * j->io->size, j->partial + i * j->io->compute_size, j->weights, j->segments,
             min(SUM_BLOCK, j->weights - i));
}

int64_t plaitk_conv_dots_scratch(const plait_pool *pool, const plaitk_conv_shape *s) {
  job j = {0};
  return plan(&j, s, plait_pool_threads(pool), NULL);
}

void plaitk_conv_by_dots(plait_pool *pool, const plaitk_conv_shape *s, const void *x, const void *dy, void *dw,
                         void *scratch) {
  job j = {.x = x, .dy = dy, .dw = dw};
  plan(&j, s, plait_pool_threads(pool), scratch);
  plait_parallel(pool, j.segments * j.group_blocks * j.row_blocks * j.channel_blocks, dots_chunk, &j);
  if (j.partial != j.dw) plait_parallel(pool, ceil_div(j.weights, SUM_BLOCK), sum_chunk, &j);
}
