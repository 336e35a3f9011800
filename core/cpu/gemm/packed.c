#include <stdatomic.h>

#include "gemm.h"
#include "scratch.h"

// A product runs in two rounds. The smaller operand is packed once, by all workers, and shared. Then the other one is
// cut along its lines (rows of A, columns of B): a chunk packs its lines for itself, block of depth by block of depth,
// and multiplies them with the whole shared operand. So both operands are packed once, and the bits of an element of C
// depend on the depth alone: how lines are cut does not matter to it, but the cut follows from the shape all the same.

#define DEPTH 384              // of a block, at most
#define SHARED_BYTES (16 << 20)  // of the shared operand at a time
#define SUMS_BYTES (1 << 20)     // of the sums that a chunk keeps beside C
#define CHUNK_PANELS 8         // of a chunk, at most
#define TAIL 16                // how finely the last chunks are cut
#define PACK_ELEMENTS 32768    // of a chunk of the first round
#define SERIAL_OPS 100000      // multiplications not worth a second thread

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
  operand local, shared;
  int64_t blocks, depth;  // of the depth, and the most one has
  int64_t from, count;    // lines of the shared operand in this round
  char *packed;           // the shared operand: block by block, panel by panel
  int64_t pack_panels, pack_groups;
  int64_t big_chunks, small_from[TAIL * 4];
  atomic_bool failed;
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

static void pack_chunk(void *arg, int64_t chunk) {
  const product *p = arg;
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

// Multiplies a panel of A with one of B to rows x cols sums at row i, column j of the part.
static void multiply_panels(const product *p, const part *t, const char *a, const char *b, int64_t i, int64_t j,
                            int64_t rows, int64_t cols, int64_t depth, bool first, bool last) {
  const gemm_job *job = p->job;
  const gemm_kernels *kn = p->kernels;
  int64_t vectors = ceil_div(cols, kn->lanes);
  gemm_micro micro = kn->micro[vectors - 1][rows - 1];
  char *sums = t->sums + (i * t->sums_row + j) * kn->size;
  bool add = !first || (job->direct && job->finish.beta != 0);
  bool finish = last && (job->bias != NULL || job->finish.relu);
  if (!job->direct || (!finish && vectors * kn->lanes == cols)) {
    micro(depth, a, b, sums, t->sums_row, add);
    return;
  }
  _Alignas(64) char tile[GEMM_MAX_TILE_BYTES];
  micro(depth, a, b, tile, vectors * kn->lanes, 0);
  gemm_store_tile(job, tile, vectors * kn->lanes, rows, cols, sums, add, last, t->i0 + i, t->j0 + j);
}

static void multiply_block(const product *p, const part *t, int64_t block) {
  const operand *local = &p->local, *shared = &p->shared;
  int64_t k0 = block_start(p, block), depth = block_start(p, block + 1) - k0;
  bool first = block == 0, last = block == p->blocks - 1;
  int64_t local_panel_bytes = local->panel * depth * p->kernels->size;
  int64_t lines = t->to - t->from;
  for (int64_t l = 0; l < lines; l += local->panel) {
    pack_panel(p, local, t->from + l, least(local->panel, lines - l), k0, depth,
               t->packed + l / local->panel * local_panel_bytes);
  }
  for (int64_t s = 0; s < p->count; s += shared->panel) {
    const char *s_data = shared_panel(p, s / shared->panel, k0, depth);
    int64_t s_lines = least(shared->panel, p->count - s);
    for (int64_t l = 0; l < lines; l += local->panel) {
      const char *l_data = t->packed + l / local->panel * local_panel_bytes;
      int64_t l_lines = least(local->panel, lines - l);
      if (p->rows_local) {
        multiply_panels(p, t, l_data, s_data, l, s, l_lines, s_lines, depth, first, last);
      } else {
        multiply_panels(p, t, s_data, l_data, s, l, s_lines, l_lines, depth, first, last);
      }
    }
  }
}

static void multiply_chunk(void *arg, int64_t chunk) {
  product *p = arg;
  const gemm_job *job = p->job;
  const gemm_kernels *kn = p->kernels;
  int64_t first = chunk * CHUNK_PANELS, end = first + CHUNK_PANELS;
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
  int64_t packed_bytes = round_up((end - first) * p->local.panel * p->depth * kn->size, 4096);
  int64_t sums_cols = round_up(cols, kn->lanes);
  t.packed = gemm_local((size_t)(packed_bytes + (job->direct ? 0 : rows * sums_cols * kn->size)));
  if (t.packed == NULL) {
    atomic_store(&p->failed, true);
    return;
  }
  char *c = job->c + (t.i0 * job->finish.c_row + t.j0 * job->finish.c_col) * job->out_size;
  t.sums = job->direct ? c : t.packed + packed_bytes;
  t.sums_row = job->direct ? job->finish.c_row : sums_cols;
  for (int64_t block = 0; block < p->blocks; block++) multiply_block(p, &t, block);
  if (!job->direct) kn->finish(&job->finish, t.sums, t.sums_row, rows, cols, c, gemm_bias(job, t.i0, t.j0));
}

// Cuts the local panels: even chunks first, then smaller and smaller ones, so that workers end together.
static int64_t cut(product *p) {
  int64_t panels = ceil_div(p->local.lines, p->local.panel);
  p->big_chunks = most(0, panels - TAIL * CHUNK_PANELS) / CHUNK_PANELS;
  int64_t at = p->big_chunks * CHUNK_PANELS, small = 0;
  while (at < panels) {
    p->small_from[small++] = at;
    at += least(CHUNK_PANELS, ceil_div(panels - at, TAIL));
  }
  p->small_from[small] = panels;
  return p->big_chunks + small;
}

int64_t gemm_packed(plait_pool *pool, const gemm_job *job) {
  const gemm_kernels *kn = job->kernels;
  product p = {.job = job, .kernels = kn, .rows_local = job->m >= job->n};
  operand a = {job->a, job->m, job->a_row, job->a_col, kn->mr, 1};
  operand b = {job->b, job->n, job->b_col, job->b_row, kn->nv * kn->lanes, kn->lanes};
  p.local = p.rows_local ? a : b;
  p.shared = p.rows_local ? b : a;
  p.blocks = most(1, ceil_div(job->k, DEPTH));
  p.depth = round_up(ceil_div(job->k, p.blocks), 8);

  int64_t panel = p.shared.panel;
  int64_t line_bytes = most(1, job->k) * kn->size;
  int64_t lines = SHARED_BYTES / line_bytes;
  if (!job->direct) lines = least(lines, SUMS_BYTES / (CHUNK_PANELS * p.local.panel * kn->size));
  lines = most(panel, lines / panel * panel);
  lines = least(lines, round_up(p.shared.lines, panel));
  p.packed = gemm_take((size_t)(lines * line_bytes));
  if (p.packed == NULL) return PLAITK_GEMM_NO_MEMORY;
  p.pack_panels = most(1, PACK_ELEMENTS / (panel * DEPTH));
  if (job->m * job->n * job->k < SERIAL_OPS) pool = NULL;
  int64_t chunks = cut(&p);
  for (p.from = 0; p.from < p.shared.lines; p.from += p.count) {
    p.count = least(lines, p.shared.lines - p.from);
    p.pack_groups = ceil_div(ceil_div(p.count, panel), p.pack_panels);
    plait_parallel(pool, p.pack_groups * p.blocks, pack_chunk, &p);
    plait_parallel(pool, chunks, multiply_chunk, &p);
  }
  gemm_give(p.packed);
  return atomic_load(&p.failed) ? PLAITK_GEMM_NO_MEMORY : PLAITK_GEMM_OK;
}
