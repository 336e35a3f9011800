#include <sched.h>
#include <stdatomic.h>

#include "gemm.h"

// The smaller operand is packed once, by all workers, and shared. The other operand is split along its lines (rows of
// A, columns of B) into chunks. Each chunk packs its own lines, one K block at a time, and multiplies them by the whole
// shared operand. Rows of A that are faster unpacked are not packed. The order of an element's sum depends on K
// alone, so the bits of C do not depend on the split.

#define SHARED_BYTES (16 << 20)  // bytes of the shared operand that are packed at a time
#define BLOCK_BYTES (512 << 10)  // bytes of B's panels that are reused for all panels of A; they stay in the L2 cache
#define LOCAL_A_BYTES (192 << 10)  // bytes of a chunk's packed block of A
#define LOCAL_B_BYTES (512 << 10)  // bytes of a chunk's packed block of B
// The same for tile registers, for which no cache but the second is fast enough.
#define TILES_SHARED_BYTES (3 << 19)
#define TILES_LOCAL_BYTES (64 << 10)
#define IN_PLACE_BYTES 2048      // row stride up to which A may stay unpacked: with a larger one, rows share cache sets
#define IN_PLACE_PANELS 16       // panels of B up to which packing A does not pay
#define SUMS_BYTES (1 << 20)     // bytes of a chunk's accumulators outside C
#define LEAST_PANELS 2           // panels that a chunk is not narrowed below for its accumulators
#define CHUNK_PANELS 64          // panels of a chunk, at most
#define TAIL 16                  // each of the last chunks is 1/TAIL of what is left, or more for few threads
#define SMALL_CHUNKS 128         // bound on the number of small chunks that split_chunks makes
#define PACK_ELEMENTS 16384      // elements that a packing chunk packs
#define PATIENCE 10000           // polls of packed_chunks before a thread yields
#define SERIAL_OPS 100000        // multiplications below which one thread does all

// An operand as lines along K: rows of A, or columns of B.
typedef struct operand {
  const char *data;
  int dtype;
  int64_t size;  // of an element
  int64_t lines, line_step, depth_step;
  int64_t panel;  // lines of a panel
  int64_t lanes;  // the last panel is padded with zero lines to a multiple of this
  gemm_pack pack;
} operand;

typedef struct product {
  const gemm_job *job;
  const gemm_kernels *kernels;
  bool rows_local;  // B is shared and chunks are rows of A; otherwise A is shared and chunks are columns of B
  bool in_place;    // A is local and stays unpacked
  operand local, shared;
  int64_t steps;          // of K: elements or pairs
  int64_t blocks, depth;  // number of K blocks, and steps of K in each
  int64_t from, count;    // lines of the shared operand that this round packs
  char *packed;           // the shared operand, by K block, then by panel
  int64_t pack_panels, pack_groups, pack_chunks;
  atomic_int_fast64_t packed_chunks;
  int64_t chunk_panels, big_chunks, small_from[SMALL_CHUNKS + 1], chunks;
  int64_t most_lines;     // of the shared operand in a round, at most
  int64_t packed_bytes;   // of a chunk's packed lines
  plait_slots slots;      // scratch for the packed lines and the accumulators of a chunk
} product;

static int64_t block_start(const product *p, int64_t block) { return min64(block * p->depth, p->steps); }

static void pack_panel(const product *p, const operand *o, int64_t line, int64_t lines, int64_t k0, int64_t depth,
                       void *to) {
  int64_t first = k0 * p->kernels->pair, elements = min64(depth * p->kernels->pair, p->job->k - first);
  const char *from = o->data + (line * o->line_step + first * o->depth_step) * o->size;
  o->pack(to, round_up(lines, o->lanes), from, o->dtype, lines, o->line_step, elements, o->depth_step);
}

static char *shared_panel(const product *p, int64_t panel, int64_t k0, int64_t depth) {
  int64_t panels = ceil_div(p->count, p->shared.panel);
  return p->packed + (k0 * panels + panel * depth) * p->shared.panel * p->kernels->size;
}

static void pack_chunk(const product *p, int64_t chunk) {
  const operand *o = &p->shared;
  int64_t block = chunk / p->pack_groups, group = chunk % p->pack_groups;
  int64_t k0 = block_start(p, block), depth = block_start(p, block + 1) - k0;
  for (int64_t i = group * p->pack_panels; i < (group + 1) * p->pack_panels; i++) {
    int64_t line = i * o->panel;
    if (line >= p->count) break;
    pack_panel(p, o, p->from + line, min64(o->panel, p->count - line), k0, depth, shared_panel(p, i, k0, depth));
  }
}

// A chunk's lines of the local operand, and its part of C.
typedef struct part {
  int64_t from, to;
  int64_t i0, j0;    // where the part starts in C
  char *packed;      // a K block of the local operand
  char *sums;        // accumulators, in C or in scratch
  int64_t sums_row;
} part;

// Multiplies a panel of A, packed or not, by a panel of B.
static void multiply(const product *p, int64_t rows, int64_t vectors, int64_t depth, const char *a, const char *b,
                     char *out, int64_t out_row, bool add) {
  const gemm_kernels *kn = p->kernels;
  if (kn->pairs != NULL) {
    kn->pairs(rows, vectors, depth, a, b, out, out_row, add);
  } else if (p->in_place) {
    kn->unpacked[vectors - 1][rows - 1](depth, a, p->job->a_row, p->job->a_col, b, vectors * kn->lanes, out, out_row, add);
  } else {
    kn->micro[vectors - 1][rows - 1](depth, a, b, out, out_row, add);
  }
}

// Multiplies rows of A by a panel of B and writes the rows x cols tile at row i, column j of the part.
static void multiply_panels(const product *p, const part *t, const char *a, const char *b, int64_t i, int64_t j,
                            int64_t rows, int64_t cols, int64_t depth, bool first, bool last) {
  const gemm_job *job = p->job;
  const gemm_kernels *kn = p->kernels;
  int64_t vectors = ceil_div(cols, kn->lanes);
  char *sums = t->sums + (i * t->sums_row + j) * kn->size;
  bool add = !first || (job->in_c && job->epilogue.beta != 0);
  bool add_bias = last && job->bias != NULL;
  if (!job->in_c || (!add_bias && vectors * kn->lanes == cols)) {
    multiply(p, rows, vectors, depth, a, b, sums, t->sums_row, add);
    return;
  }
  _Alignas(64) char tile[GEMM_MAX_TILE_BYTES];
  multiply(p, rows, vectors, depth, a, b, tile, vectors * kn->lanes, false);
  gemm_store_tile(job, tile, vectors * kn->lanes, rows, cols, sums, add, last, t->i0 + i, t->j0 + j);
}

// Multiplies the panels of a K block. A panel of A stays in the L1 cache while the panels of B pass. A group of B's
// panels stays in the L2 cache for all panels of A.
static void multiply_block(const product *p, const part *t, int64_t block) {
  int64_t k0 = block_start(p, block), depth = block_start(p, block + 1) - k0;
  bool first = block == 0, last = block == p->blocks - 1;
  const operand *local = &p->local, *a = p->rows_local ? local : &p->shared, *b = p->rows_local ? &p->shared : local;
  int64_t local_bytes = local->panel * depth * p->kernels->size, local_lines = t->to - t->from;
  for (int64_t l = 0; l < local_lines && !p->in_place; l += local->panel) {
    pack_panel(p, local, t->from + l, min64(local->panel, local_lines - l), k0, depth,
               t->packed + l / local->panel * local_bytes);
  }
  const char *a_data = p->rows_local ? t->packed : shared_panel(p, 0, k0, depth);
  int64_t a_row = depth * p->kernels->size;
  if (p->in_place) {
    a_row = p->job->a_row * p->kernels->size;
    a_data = p->job->a + t->from * a_row + k0 * p->job->a_col * p->kernels->size;
  }
  const char *b_data = p->rows_local ? shared_panel(p, 0, k0, depth) : t->packed;
  int64_t rows = p->rows_local ? local_lines : p->count, cols = p->rows_local ? p->count : local_lines;
  int64_t b_block = max64(1, BLOCK_BYTES / (b->panel * max64(1, depth) * p->kernels->size)) * b->panel;
  for (int64_t j0 = 0; j0 < cols; j0 += b_block) {
    for (int64_t i = 0; i < rows; i += a->panel) {
      for (int64_t j = j0; j < min64(j0 + b_block, cols); j += b->panel) {
        multiply_panels(p, t, a_data + i * a_row, b_data + j * depth * p->kernels->size, i, j,
                        min64(a->panel, rows - i), min64(b->panel, cols - j), depth, first, last);
      }
    }
  }
}

static void multiply_chunk(product *p, int64_t chunk) {
  const gemm_job *job = p->job;
  const gemm_kernels *kn = p->kernels;
  int64_t first = chunk * p->chunk_panels, end = first + p->chunk_panels;
  if (chunk >= p->big_chunks) {
    first = p->small_from[chunk - p->big_chunks];
    end = p->small_from[chunk - p->big_chunks + 1];
  }
  part t = {.from = first * p->local.panel, .to = min64(end * p->local.panel, p->local.lines)};
  int64_t rows, cols;
  if (p->rows_local) {
    t.i0 = t.from, t.j0 = p->from;
    rows = t.to - t.from, cols = p->count;
  } else {
    t.i0 = p->from, t.j0 = t.from;
    rows = p->count, cols = t.to - t.from;
  }
  int64_t slot = plait_slot_acquire(&p->slots);
  t.packed = p->slots.bytes + slot * p->slots.size;
  int64_t sums_cols = round_up(cols, kn->lanes);
  char *c = job->c + (t.i0 * job->epilogue.c_row + t.j0 * job->epilogue.c_col) * job->out_size;
  t.sums = job->in_c ? c : t.packed + p->packed_bytes;
  t.sums_row = job->in_c ? job->epilogue.c_row : sums_cols;
  if (kn->begin != NULL) kn->begin();
  for (int64_t block = 0; block < p->blocks; block++) multiply_block(p, &t, block);
  if (kn->end != NULL) kn->end();
  if (!job->in_c) kn->epilogue(&job->epilogue, t.sums, t.sums_row, rows, cols, c, gemm_bias(job, t.i0, t.j0));
  plait_slot_release(&p->slots, slot);
}

// The first chunks pack, the others multiply. Chunks start in order, so when a multiplying chunk waits, other threads
// already run the packing chunks.
static void run_chunk(void *arg, int64_t chunk) {
  product *p = arg;
  if (chunk < p->pack_chunks) {
    pack_chunk(p, chunk);
    atomic_fetch_add_explicit(&p->packed_chunks, 1, memory_order_release);
    return;
  }
  for (int i = 0; atomic_load_explicit(&p->packed_chunks, memory_order_acquire) < p->pack_chunks; i++) {
    if (i > PATIENCE) sched_yield();
  }
  multiply_chunk(p, chunk - p->pack_chunks);
}

// Splits the panels into equal chunks followed by smaller and smaller ones, so that workers finish together. A larger chunk
// reads the shared operand less often.
static void split_chunks(product *p, int threads) {
  int64_t panels = ceil_div(p->local.lines, p->local.panel), tail = threads == 1 ? 1 : min64(4 * threads, TAIL);
  p->big_chunks = max64(0, panels - tail * p->chunk_panels) / p->chunk_panels;
  int64_t at = p->big_chunks * p->chunk_panels, small = 0;
  while (at < panels) {
    p->small_from[small++] = at;
    at += min64(p->chunk_panels, ceil_div(panels - at, tail));
  }
  p->small_from[small] = panels;
  p->chunks = p->big_chunks + small;
}

static bool is_serial(const gemm_job *job) { return job->m * job->n * job->k < SERIAL_OPS; }

static product plan(const gemm_job *job, int threads, char **at, int lay_out) {
  const gemm_kernels *kn = job->pairs != NULL ? job->pairs : job->kernels;
  product p = {.job = job, .kernels = kn, .rows_local = job->m >= job->n};
  operand a = {job->a, job->a_in, job->a_size, job->m, job->a_row, job->a_col, kn->mr, kn->a_lanes, kn->pack_a};
  operand b = {job->b, job->b_in, job->b_size, job->n, job->b_col, job->b_row, kn->nv * kn->lanes, kn->lanes, kn->pack};
  p.local = p.rows_local ? a : b;
  p.shared = p.rows_local ? b : a;
  p.steps = round_up(ceil_div(job->k, kn->pair), kn->unit);
  p.blocks = max64(1, ceil_div(p.steps * kn->size, kn->depth_bytes));
  p.depth = max64(8, round_up(ceil_div(p.steps, p.blocks), max64(8, kn->unit)));
  p.in_place = p.rows_local && job->same_type && job->a_col == 1 && job->a_row > 0 && job->a_row * kn->size <= IN_PLACE_BYTES &&
               job->n <= IN_PLACE_PANELS * b.panel;
  int64_t panel = p.shared.panel;
  int64_t line_bytes = max64(1, p.steps) * kn->size;
  int64_t shared_bytes = kn->pairs != NULL ? TILES_SHARED_BYTES : SHARED_BYTES;
  int64_t lines = max64(panel, shared_bytes / line_bytes / panel * panel);
  lines = round_up(ceil_div(p.shared.lines, ceil_div(p.shared.lines, lines)), panel);  // rounds of one size
  int64_t panel_bytes = p.local.panel * p.depth * kn->size, local_bytes = p.rows_local ? LOCAL_A_BYTES : LOCAL_B_BYTES;
  if (kn->pairs != NULL) local_bytes = TILES_LOCAL_BYTES;
  p.chunk_panels = min64(max64(1, local_bytes / panel_bytes), CHUNK_PANELS);
  // Accumulators outside C: narrow chunks rather than another round, which packs the local operand again.
  int64_t sums_panels = SUMS_BYTES / (lines * p.local.panel * kn->size);
  if (!job->in_c) p.chunk_panels = max64(1, min64(p.chunk_panels, max64(sums_panels, LEAST_PANELS)));
  split_chunks(&p, threads);
  int64_t of_chunk = (p.big_chunks > 0 ? p.chunk_panels : p.small_from[1]) * p.local.panel, sums = 0;
  if (!job->in_c) lines = min64(lines, max64(1, SUMS_BYTES / (of_chunk * panel * kn->size)) * panel);
  p.most_lines = lines;
  p.pack_panels = max64(1, PACK_ELEMENTS / (panel * p.depth));
  p.packed = plait_carve(at, lines * line_bytes);

  p.packed_bytes = p.in_place ? 0 : round_up(of_chunk * p.depth * kn->size, 4096);
  if (!job->in_c) sums = p.rows_local ? of_chunk * round_up(lines, kn->lanes) : lines * round_up(of_chunk, kn->lanes);
  plait_slots_plan(&p.slots, at, is_serial(job) ? 1 : min64(threads, p.chunks), p.packed_bytes + sums * kn->size, lay_out);
  return p;
}

int64_t gemm_packed_scratch(int threads, const gemm_job *job) {
  char *at = NULL;
  plan(job, threads, &at, 0);
  return (int64_t)(intptr_t)at;
}

void gemm_packed(plait_pool *pool, const gemm_job *job, char *scratch) {
  product p = plan(job, plait_pool_threads(pool), &scratch, 1);
  if (is_serial(job)) pool = NULL;
  for (p.from = 0; p.from < p.shared.lines; p.from += p.count) {
    p.count = min64(p.most_lines, p.shared.lines - p.from);
    p.pack_groups = ceil_div(ceil_div(p.count, p.shared.panel), p.pack_panels);
    p.pack_chunks = p.pack_groups * p.blocks;
    atomic_store_explicit(&p.packed_chunks, 0, memory_order_relaxed);
    plait_parallel(pool, p.pack_chunks + p.chunks, run_chunk, &p);
  }
}
