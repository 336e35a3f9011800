#include <sched.h>
#include <stdatomic.h>

#include "gemm.h"

// The smaller operand is packed once, by all workers, and shared. Then the other one is cut along its lines (rows of A,
// columns of B): a chunk packs its lines for itself, block of depth by block of depth, and multiplies them with the whole
// shared operand. So both operands are packed once, but for rows of A that are better used where they are. The bits of an
// element of C depend on the depth alone: how lines are cut does not matter to it, but the cut follows from the shape all
// the same.

#define DEPTH_BYTES 2048         // of a line in a block, at most
#define SHARED_BYTES (16 << 20)  // of the shared operand at a time
#define BLOCK_BYTES (512 << 10)  // of B's panels that are gone through again and again, in the second cache
#define LOCAL_A_BYTES (192 << 10)  // of a chunk's block of A
#define LOCAL_B_BYTES (512 << 10)  // of a chunk's block of B
#define IN_PLACE_BYTES 2048      // of a row of A that is used where it is, at most: rows further apart share places in the cache
#define IN_PLACE_PANELS 16       // of B that make use of a panel of A, at most, for packing it not to pay
#define SUMS_BYTES (1 << 20)     // of the sums that a chunk keeps beside C
#define CHUNK_PANELS 64          // of a chunk, at most
#define TAIL 16                  // how finely the last chunks are cut
#define SMALL_CHUNKS 128         // more than the cut makes: CHUNK_PANELS * TAIL panels, a TAILth of the rest at a time
#define PACK_ELEMENTS 16384      // of a chunk that packs
#define PATIENCE 10000           // looks at whether others have packed, before giving the processor away
#define SERIAL_OPS 100000        // multiplications not worth a second thread

// One operand as lines: rows of A, or columns of B.
typedef struct operand {
  const char *data;
  int64_t lines, line_step, depth_step;
  int64_t panel;  // lines of a panel
  int64_t lanes;  // a panel has a multiple of so many lines, the missing ones zero
} operand;

typedef struct product {
  const gemm_job *job;
  const gemm_kernels *kernels;
  bool rows_local;  // chunks are rows of A, and B is shared; or columns of B, and A is shared
  bool in_place;    // A is local, and used where it is
  operand local, shared;
  int64_t blocks, depth;  // of the depth, and the most one has
  int64_t from, count;    // lines of the shared operand in this round
  char *packed;           // the shared operand: block by block, panel by panel
  int64_t pack_panels, pack_groups, pack_chunks;
  atomic_int_fast64_t packed_chunks;
  int64_t chunk_panels, big_chunks, small_from[SMALL_CHUNKS + 1], chunks;
  int64_t most_lines;     // of the shared operand in a round
  int64_t packed_bytes;   // of the local operand's part in a chunk
  plait_slots slots;      // for that and the chunk's sums
} product;

static int64_t block_start(const product *p, int64_t block) { return least(block * p->depth, p->job->k); }

static void pack_panel(const product *p, const operand *o, int64_t line, int64_t lines, int64_t k0, int64_t depth,
                       void *to) {
  const char *from = o->data + (line * o->line_step + k0 * o->depth_step) * p->job->in_size;
  p->kernels->pack(to, round_up(lines, o->lanes), from, p->job->in, lines, o->line_step, depth, o->depth_step);
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
    pack_panel(p, o, p->from + line, least(o->panel, p->count - line), k0, depth, shared_panel(p, i, k0, depth));
  }
}

// A chunk at work: lines from..to of the local operand, and the part of C they make with the shared one.
typedef struct part {
  int64_t from, to;
  int64_t i0, j0;    // of C
  char *packed;      // a block of the local operand
  char *sums;        // in C or beside it
  int64_t sums_row;
} part;

// Multiplies a panel of A, or rows of it where they are, with a panel of B.
static void multiply(const product *p, int64_t rows, int64_t vectors, int64_t depth, const char *a, const char *b,
                     char *out, int64_t out_row, bool add) {
  const gemm_kernels *kn = p->kernels;
  if (p->in_place) {
    kn->direct[vectors - 1][rows - 1](depth, a, p->job->a_row, p->job->a_col, b, vectors * kn->lanes, out, out_row, add);
  } else {
    kn->micro[vectors - 1][rows - 1](depth, a, b, out, out_row, add);
  }
}

// Multiplies rows of A with a panel of B to rows x cols sums at row i, column j of the part.
static void multiply_panels(const product *p, const part *t, const char *a, const char *b, int64_t i, int64_t j,
                            int64_t rows, int64_t cols, int64_t depth, bool first, bool last) {
  const gemm_job *job = p->job;
  const gemm_kernels *kn = p->kernels;
  int64_t vectors = ceil_div(cols, kn->lanes);
  char *sums = t->sums + (i * t->sums_row + j) * kn->size;
  bool add = !first || (job->direct && job->finish.beta != 0);
  bool finish = last && job->bias != NULL;
  if (!job->direct || (!finish && vectors * kn->lanes == cols)) {
    multiply(p, rows, vectors, depth, a, b, sums, t->sums_row, add);
    return;
  }
  _Alignas(64) char tile[GEMM_MAX_TILE_BYTES];
  multiply(p, rows, vectors, depth, a, b, tile, vectors * kn->lanes, false);
  gemm_store_tile(job, tile, vectors * kn->lanes, rows, cols, sums, add, last, t->i0 + i, t->j0 + j);
}

// Multiplies the panels of a block. A panel of A stays in the first cache while B's go by, so that C is written along its
// rows, and a few of B's stay in the second cache for all of A's.
static void multiply_block(const product *p, const part *t, int64_t block) {
  int64_t k0 = block_start(p, block), depth = block_start(p, block + 1) - k0;
  bool first = block == 0, last = block == p->blocks - 1;
  const operand *local = &p->local, *a = p->rows_local ? local : &p->shared, *b = p->rows_local ? &p->shared : local;
  int64_t local_bytes = local->panel * depth * p->kernels->size, local_lines = t->to - t->from;
  for (int64_t l = 0; l < local_lines && !p->in_place; l += local->panel) {
    pack_panel(p, local, t->from + l, least(local->panel, local_lines - l), k0, depth,
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
  int64_t b_block = most(1, BLOCK_BYTES / (b->panel * most(1, depth) * p->kernels->size)) * b->panel;
  for (int64_t j0 = 0; j0 < cols; j0 += b_block) {
    for (int64_t i = 0; i < rows; i += a->panel) {
      for (int64_t j = j0; j < least(j0 + b_block, cols); j += b->panel) {
        multiply_panels(p, t, a_data + i * a_row, b_data + j * depth * p->kernels->size, i, j,
                        least(a->panel, rows - i), least(b->panel, cols - j), depth, first, last);
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
  part t = {.from = first * p->local.panel, .to = least(end * p->local.panel, p->local.lines)};
  int64_t rows, cols;
  if (p->rows_local) {
    t.i0 = t.from, t.j0 = p->from;
    rows = t.to - t.from, cols = p->count;
  } else {
    t.i0 = p->from, t.j0 = t.from;
    rows = p->count, cols = t.to - t.from;
  }
  int64_t slot = plait_take(&p->slots);
  t.packed = p->slots.bytes + slot * p->slots.size;
  int64_t sums_cols = round_up(cols, kn->lanes);
  char *c = job->c + (t.i0 * job->finish.c_row + t.j0 * job->finish.c_col) * job->out_size;
  t.sums = job->direct ? c : t.packed + p->packed_bytes;
  t.sums_row = job->direct ? job->finish.c_row : sums_cols;
  for (int64_t block = 0; block < p->blocks; block++) multiply_block(p, &t, block);
  if (!job->direct) kn->finish(&job->finish, t.sums, t.sums_row, rows, cols, c, gemm_bias(job, t.i0, t.j0));
  plait_give(&p->slots, slot);
}

// The chunks that pack come first. Chunks are begun in their order, so one that multiplies waits for others at work.
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

// Cuts the local panels: even chunks first, then smaller and smaller ones, so that workers end together.
static void cut(product *p) {
  int64_t panels = ceil_div(p->local.lines, p->local.panel);
  p->big_chunks = most(0, panels - TAIL * p->chunk_panels) / p->chunk_panels;
  int64_t at = p->big_chunks * p->chunk_panels, small = 0;
  while (at < panels) {
    p->small_from[small++] = at;
    at += least(p->chunk_panels, ceil_div(panels - at, TAIL));
  }
  p->small_from[small] = panels;
  p->chunks = p->big_chunks + small;
}

static bool is_serial(const gemm_job *job) { return job->m * job->n * job->k < SERIAL_OPS; }

static product plan(const gemm_job *job, int threads, char **at, int lay_out) {
  const gemm_kernels *kn = job->kernels;
  product p = {.job = job, .kernels = kn, .rows_local = job->m >= job->n};
  operand a = {job->a, job->m, job->a_row, job->a_col, kn->mr, 1};
  operand b = {job->b, job->n, job->b_col, job->b_row, kn->nv * kn->lanes, kn->lanes};
  p.local = p.rows_local ? a : b;
  p.shared = p.rows_local ? b : a;
  p.blocks = most(1, ceil_div(job->k * kn->size, DEPTH_BYTES));
  p.depth = most(8, round_up(ceil_div(job->k, p.blocks), 8));
  p.in_place = p.rows_local && job->own && job->a_col == 1 && job->a_row > 0 && job->a_row * kn->size <= IN_PLACE_BYTES &&
               job->n <= IN_PLACE_PANELS * b.panel;
  int64_t local_bytes = p.rows_local ? LOCAL_A_BYTES : LOCAL_B_BYTES;
  p.chunk_panels = least(most(1, local_bytes / (p.local.panel * p.depth * kn->size)), CHUNK_PANELS);
  cut(&p);

  int64_t panel = p.shared.panel;
  int64_t line_bytes = most(1, job->k) * kn->size;
  int64_t lines = SHARED_BYTES / line_bytes;
  if (!job->direct) lines = least(lines, SUMS_BYTES / (p.chunk_panels * p.local.panel * kn->size));
  lines = most(panel, lines / panel * panel);
  p.most_lines = lines = least(lines, round_up(p.shared.lines, panel));
  p.pack_panels = most(1, PACK_ELEMENTS / (panel * p.depth));
  p.packed = plait_carve(at, lines * line_bytes);

  int64_t of_chunk = (p.big_chunks > 0 ? p.chunk_panels : p.small_from[1]) * p.local.panel, sums = 0;
  p.packed_bytes = p.in_place ? 0 : round_up(of_chunk * p.depth * kn->size, 4096);
  if (!job->direct) sums = p.rows_local ? of_chunk * round_up(lines, kn->lanes) : lines * round_up(of_chunk, kn->lanes);
  plait_slots_plan(&p.slots, at, is_serial(job) ? 1 : least(threads, p.chunks), p.packed_bytes + sums * kn->size, lay_out);
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
    p.count = least(p.most_lines, p.shared.lines - p.from);
    p.pack_groups = ceil_div(ceil_div(p.count, p.shared.panel), p.pack_panels);
    p.pack_chunks = p.pack_groups * p.blocks;
    atomic_store_explicit(&p.packed_chunks, 0, memory_order_relaxed);
    plait_parallel(pool, p.pack_chunks + p.chunks, run_chunk, &p);
  }
}
