// The forward pass and the input gradient.
#include "passes.h"
#include "lattice.h"
#include "../../../include/plait_slots.h"

#define min plaitk_conv_min
#define max plaitk_conv_max
#define ceil_div plaitk_conv_ceil
#define round_up plaitk_conv_round

// Rows that are summed while a copy is read.
#define ROW_BLOCK 64
// Targets for the multiplications of a chunk and for the number of chunks.
#define CHUNK_WORK ((double)(1 << 19))
#define CHUNKS 32
#define POSITIONS 512
#define MIN_POSITIONS 128
#define COPY_ELEMENTS (256 << 10)
#define SHARED_ELEMENTS (8 << 20)  // of the copies that row blocks share
#define FILL_ELEMENTS (16 << 10)   // of a chunk that fills a part of such a copy
// Steps of k that all positions take before the next ones.
#define K_BLOCK 256

// The work for one lattice.
typedef struct {
  plaitk_conv_lattice lattice;
  plaitk_conv_weights weights;
  int64_t *koff;
  char *packed;          // the weights, packed into panels
  int64_t panels, panel_group;    // of one group: panels, and elements of all panels
  int64_t row_blocks, row_block;  // number of row blocks, and rows in each
  int64_t group_blocks, group_block;
  int64_t first, chunks;          // number of the lattice's first chunk, and its number of chunks
  int64_t pack_first, pack_chunks, pack_block;
  // With several row blocks, a copy for each block and group, filled before any is read. NULL: chunks fill their own.
  char *copies;
  int64_t fill_chunks, fill_blocks, fill_block;  // chunks that fill, those of a copy, and channels in each
} part;

typedef struct {
  const plaitk_conv_micro *micro;
  const plaitk_conv_io *io;
  int64_t images, groups, rows, channels;  // rows and channels are those of one group
  int64_t out_size[3], out_plane, group_weights;
  int64_t parts;
  part *part;
  plait_slots slots;
  int64_t copy_bytes, sum_bytes;
  const void *in, *w, *bias;
  void *out;
} job;

// Cuts the lattice into blocks of positions, and these into row blocks, which read the same copy.
static void cut(const job *j, part *p) {
  plaitk_conv_lattice *l = &p->lattice;
  int lanes = j->micro->lanes;
  int64_t blocks;
  double work;
  for (int64_t positions = POSITIONS;; positions /= 2) {
    plaitk_conv_lattice_cut(l, j->channels, j->images, j->rows, lanes, positions, COPY_ELEMENTS, 0);
    blocks = plaitk_conv_lattice_blocks(l) * j->groups;
    work = (double)l->vectors * lanes * max(l->k, 1) * j->rows;
    p->row_blocks = 1;
    if (blocks >= CHUNKS || work < 2 * CHUNK_WORK) break;
    if (blocks * l->copy <= SHARED_ELEMENTS) p->row_blocks = min(ceil_div(CHUNKS, blocks), ceil_div(j->rows, ROW_BLOCK));
    if (blocks * p->row_blocks >= CHUNKS || positions <= MIN_POSITIONS) break;
  }
  work /= (double)p->row_blocks;
  p->row_block = round_up(max(1, ceil_div(j->rows, p->row_blocks)), 8);
  p->row_blocks = ceil_div(j->rows, p->row_block);
  p->group_block = work >= CHUNK_WORK ? 1 : min(j->groups, (int64_t)(CHUNK_WORK / work) + 1);
  p->group_blocks = ceil_div(j->groups, p->group_block);
  p->chunks = plaitk_conv_lattice_blocks(l) * p->row_blocks * p->group_blocks;
}

static void plan_part(const job *j, part *p) {
  plaitk_conv_lattice *l = &p->lattice;
  int tall = j->micro->taps[0].rows;
  cut(j, p);
  int64_t tail = j->rows % tall;
  p->panels = ceil_div(j->rows, tall);
  p->panel_group = (j->rows - tail) * l->k;
  if (tail > 0) p->panel_group += j->micro->taps[plaitk_conv_height(j->micro, tail)].rows * l->k;
  p->pack_block = max(1, 16384 / max(1, tall * l->k));
  p->pack_chunks = l->k == 0 ? 0 : ceil_div(p->panels * j->groups, p->pack_block);
  p->fill_block = max(1, FILL_ELEMENTS / max(1, l->channel));
  p->fill_blocks = ceil_div(j->channels, p->fill_block);
  p->fill_chunks = p->row_blocks > 1 ? plaitk_conv_lattice_blocks(l) * j->groups * p->fill_blocks : 0;
}

static int64_t copy_bytes(const job *j, const part *p) {
  return round_up(p->lattice.copy * j->io->compute_size, PLAIT_SLOT_ALIGN);
}

// Lays out the job in scratch. With scratch == NULL it writes nothing. Returns the bytes needed.
static int64_t plan(job *j, const plaitk_conv_shape *s, int input_grad, int64_t threads, char *scratch) {
  char *at = scratch;
  j->io = plaitk_conv_io_for(s->dtype);
  j->micro = plaitk_conv_micro_for(s->dtype == PLAIT_F64);
  j->images = s->n;
  j->groups = s->groups;
  j->rows = (input_grad ? s->cin : s->cout) / s->groups;
  j->channels = (input_grad ? s->cout : s->cin) / s->groups;
  memcpy(j->out_size, input_grad ? s->in : s->out, sizeof j->out_size);
  j->out_plane = j->out_size[0] * j->out_size[1] * j->out_size[2];
  int64_t steps[3], taps = s->kernel[0] * s->kernel[1] * s->kernel[2];
  for (int d = 0; d < 3; d++) steps[d] = input_grad ? min(s->stride[d], s->in[d]) : 1;
  j->group_weights = j->rows * j->channels * taps;
  j->parts = steps[0] * steps[1] * steps[2];
  j->part = plait_carve(&at, j->parts * (int64_t)sizeof(part));
  int64_t first = 0, pack_first = 0, copy = 0, vectors = 0, size = j->io->compute_size;
  for (int64_t i = 0; i < j->parts; i++) {
    part local, *p = scratch ? &j->part[i] : &local;
    int64_t residue[3] = {i / (steps[1] * steps[2]), i / steps[2] % steps[1], i % steps[2]};
    if (input_grad) {
      plaitk_conv_lattice_input_grad(&p->lattice, s, residue);
    } else {
      plaitk_conv_lattice_forward(&p->lattice, s);
    }
    plan_part(j, p);
    p->koff = plait_carve(&at, p->lattice.k * (int64_t)sizeof(int64_t));
    p->packed = plait_carve(&at, j->groups * p->panel_group * size);
    p->copies = NULL;
    if (p->fill_chunks > 0) {
      p->copies = plait_carve(&at, plaitk_conv_lattice_blocks(&p->lattice) * j->groups * copy_bytes(j, p));
    } else {
      copy = max(copy, copy_bytes(j, p));
    }
    if (scratch) {
      plaitk_conv_weights *w = &p->weights;
      w->channels = j->channels;
      w->m_stride = input_grad ? taps : j->channels * taps;
      w->c_stride = input_grad ? j->rows * taps : taps;
      for (int d = 0; d < 3; d++) {
        w->kernel[d] = s->kernel[d];
        w->nt[d] = p->lattice.nt[d];
        w->tap0[d] = p->lattice.tap0[d];
        w->tap_step[d] = p->lattice.tap_step[d];
      }
      plaitk_conv_lattice_koff(&p->lattice, p->koff);
      p->first = first;
      p->pack_first = pack_first;
    }
    first += p->chunks;
    pack_first += p->pack_chunks + p->fill_chunks;
    vectors = max(vectors, p->lattice.vectors);
  }
  int64_t lanes = j->micro->lanes;
  j->copy_bytes = copy;
  j->sum_bytes = round_up(vectors * lanes * min(ROW_BLOCK, round_up(j->rows, 8)) * size, PLAIT_SLOT_ALIGN);
  int64_t slot = j->copy_bytes + j->sum_bytes + round_up(vectors * (int64_t)sizeof(int64_t), PLAIT_SLOT_ALIGN);
  plait_slots_plan(&j->slots, &at, max(1, min(threads, first)), slot, scratch != NULL);
  return (int64_t)((intptr_t)at - (intptr_t)scratch);
}

static part *part_of(const job *j, int64_t chunk, int pack) {
  int64_t lo = 0, hi = j->parts;
  while (hi - lo > 1) {
    int64_t mid = (lo + hi) / 2;
    if ((pack ? j->part[mid].pack_first : j->part[mid].first) <= chunk) {
      lo = mid;
    } else {
      hi = mid;
    }
  }
  return &j->part[lo];
}

// Returns the copy of a block's input for a group.
static char *copy_of(const job *j, const part *p, int64_t block, int64_t g) {
  return p->copies + (block * j->groups + g) * copy_bytes(j, p);
}

// Fills some channels of a copy that row blocks share.
static void fill_chunk(const job *j, const part *p, int64_t chunk) {
  int64_t channel = chunk % p->fill_blocks * p->fill_block, count = min(p->fill_block, j->channels - channel);
  chunk /= p->fill_blocks;
  int64_t g = chunk % j->groups, block = chunk / j->groups;
  int lanes = j->micro->lanes;
  plaitk_conv_block b = plaitk_conv_lattice_block(&p->lattice, block, lanes);
  plaitk_conv_lattice_fill(&p->lattice, &b, j->io, j->in, g * j->channels + channel, count, j->groups * j->channels, lanes,
                           copy_of(j, p, block, g) + channel * p->lattice.channel * j->io->compute_size);
}

// Packs weights, or fills a copy.
static void pack_chunk(void *arg, int64_t chunk) {
  const job *j = arg;
  const part *p = part_of(j, chunk, 1);
  int tall = j->micro->taps[0].rows;
  chunk -= p->pack_first;
  if (chunk >= p->pack_chunks) {
    fill_chunk(j, p, chunk - p->pack_chunks);
    return;
  }
  int64_t begin = chunk * p->pack_block;
  int64_t end = min(begin + p->pack_block, p->panels * j->groups);
  for (int64_t i = begin; i < end; i++) {
    int64_t g = i / p->panels, m = i % p->panels * tall, count = min(tall, j->rows - m);
    int rows = j->micro->taps[plaitk_conv_height(j->micro, count)].rows;
    j->io->pack(p->packed + (g * p->panel_group + m * p->lattice.k) * j->io->compute_size,
                (const char *)j->w + g * j->group_weights * j->io->size, &p->weights, m, rows, count);
  }
}

// Computes rows [m0, m1) of group g at the block's positions.
static void multiply(const job *j, const part *p, const plaitk_conv_block *b, int64_t g, int64_t m0, int64_t m1,
                     const char *copy, const int64_t *base, char *sums) {
  const plaitk_conv_micro *micro = j->micro;
  int64_t k = p->lattice.k, size = j->io->compute_size, ld = b->vectors * micro->lanes;
  int64_t kc = max(1, ceil_div(k, max(1, ceil_div(k, K_BLOCK))));
  int tall = micro->taps[0].rows;
  int tail = plaitk_conv_height(micro, (m1 - m0) % tall);
  int group = micro->taps[0].vectors[0];
  if (m1 - m0 < tall) group = micro->taps[tail].vectors[0];
  for (int64_t k0 = 0; k0 == 0 || k0 < k; k0 += kc) {
    int64_t depth = min(kc, k - k0);
    for (int64_t v0 = 0, v1; v0 < b->vectors; v0 = v1) {
      v1 = min(v0 + group, b->vectors);
      // Two pairs of vectors are faster than three and one: a single one waits for its sums.
      if (group == 3 && b->vectors - v1 == 1) v1 = v0 + 2;
      for (int64_t m = m0; m < m1; m += tall) {
        int h = m1 - m >= tall ? 0 : tail;
        int rows = micro->taps[h].rows;
        const char *a = p->packed + (g * p->panel_group + m * k + k0 * rows) * size;
        for (int64_t v = v0; v < v1;) {
          int i = 0;
          while (micro->taps[h].vectors[i] > v1 - v) i++;
          micro->taps[h].fn[i](depth, a, p->koff + k0, copy, base + v, sums + ((m - m0) * ld + v * micro->lanes) * size,
                               ld, k0 > 0, CONV_CHAIN);
          v += micro->taps[h].vectors[i];
        }
      }
    }
  }
}

static void store(const job *j, const part *p, const plaitk_conv_block *b, int64_t g, int64_t m0, int64_t m1,
                  const char *sums) {
  const plaitk_conv_lattice *l = &p->lattice;
  int64_t size = j->io->compute_size, ld = b->vectors * j->micro->lanes;
  int64_t at[3];
  for (int d = 0; d < 3; d++) at[d] = b->q0[d] * l->out_step[d] + l->out_start[d];
  for (int64_t m = m0; m < m1; m++) {
    int64_t channel = g * j->rows + m;
    const char *bias = j->bias ? (const char *)j->bias + channel * j->io->size : NULL;
    for (int64_t i = 0; i < b->nb; i++) {
      int64_t plane = ((b->b0 + i) * j->groups * j->rows + channel) * j->out_plane;
      for (int64_t z = 0; z < b->n[0]; z++) {
        int64_t to = plane + ((at[0] + z * l->out_step[0]) * j->out_size[1] + at[1]) * j->out_size[2] + at[2];
        j->io->store((char *)j->out + to * j->io->size, l->out_step[1] * j->out_size[2], l->out_step[2],
                     sums + ((m - m0) * ld + i * b->pitch[0] + z * b->pitch[1]) * size, b->pitch[2], b->n[1], b->n[2],
                     bias);
      }
    }
  }
}

static void taps_chunk(void *arg, int64_t chunk) {
  const job *j = arg;
  const part *p = part_of(j, chunk, 0);
  int lanes = j->micro->lanes;
  int64_t slot = plait_slot_acquire(&j->slots);
  char *own = j->slots.bytes + slot * j->slots.size, *sums = own + j->copy_bytes;
  int64_t *base = (int64_t *)(sums + j->sum_bytes);
  chunk -= p->first;
  int64_t m0 = chunk % p->row_blocks * p->row_block, m1 = min(m0 + p->row_block, j->rows);
  chunk /= p->row_blocks;
  int64_t g0 = chunk % p->group_blocks * p->group_block, g1 = min(g0 + p->group_block, j->groups);
  chunk /= p->group_blocks;
  plaitk_conv_block b = plaitk_conv_lattice_block(&p->lattice, chunk, lanes);
  plaitk_conv_lattice_base(&p->lattice, &b, lanes, base);
  for (int64_t g = g0; g < g1; g++) {
    const char *copy = own;
    if (p->copies != NULL) {
      copy = copy_of(j, p, chunk, g);
    } else {
      plaitk_conv_lattice_fill(&p->lattice, &b, j->io, j->in, g * j->channels, j->channels, j->groups * j->channels,
                               lanes, own);
    }
    for (int64_t m = m0; m < m1; m += ROW_BLOCK) {
      int64_t end = min(m + ROW_BLOCK, m1);
      multiply(j, p, &b, g, m, end, copy, base, sums);
      store(j, p, &b, g, m, end, sums);
    }
  }
  plait_slot_release(&j->slots, slot);
}

int64_t plaitk_conv_taps_scratch(const plait_pool *pool, const plaitk_conv_shape *s, plaitk_conv_pass pass) {
  job j = {0};
  return plan(&j, s, pass == CONV_INPUT_GRAD, plait_pool_threads(pool), NULL);
}

void plaitk_conv_by_taps(plait_pool *pool, const plaitk_conv_shape *s, plaitk_conv_pass pass, const void *in,
                         const void *w, const void *bias, void *out, void *scratch) {
  job j = {.in = in, .w = w, .bias = bias, .out = out};
  plan(&j, s, pass == CONV_INPUT_GRAD, plait_pool_threads(pool), scratch);
  const part *last = &j.part[j.parts - 1];
  plait_parallel(pool, last->pack_first + last->pack_chunks + last->fill_chunks, pack_chunk, &j);
  plait_parallel(pool, last->first + last->chunks, taps_chunk, &j);
}
