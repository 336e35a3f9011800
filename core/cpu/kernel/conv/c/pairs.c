// Convolutions of bfloat16 by the dot products of AVX-512 BF16, which sum the products of pairs of elements in float32.
// Subnormal numbers count as zero.
//
// The input is copied once, with the two elements of a pair of channels next to each other. The columns, which are the
// output positions of all images, follow each other; with strides there is a part of the copy for each residue of the
// positions that taps read. So what a tap reads at adjacent columns is adjacent, at a constant offset from these, and
// nothing is unfolded. Masks leave out the columns at which a tap reads padding.
//
// An element sums over the pairs of channels, and for each over the taps, in order. So its bits do not depend on how
// the product is cut.
#include "passes.h"

#include "lattice.h"
#include "../../../include/plait_gemm.h"
#include "../../../include/plait_slots.h"

#if defined(__x86_64__) && defined(__GNUC__)

#include "pairs.h"

#define min plaitk_conv_min
#define max plaitk_conv_max
#define ceil_div plaitk_conv_ceil
#define floor_div plaitk_conv_floor
#define round_up plaitk_conv_round
#define balance plaitk_conv_balance
#define volume plaitk_conv_volume

#define MAX_TAPS 32           // a vector holds the elements of a channel
#define COPY_PAIRS (1 << 20)  // of a block of images
#define FILL_PAIRS (8 << 10)  // of a chunk that fills the copy, at least
#define ROW_BYTES (256 << 10) // of the weights of a chunk, which stay in the second cache
#define COLUMNS 256           // of a chunk
#define CHUNKS 32             // target for the number of chunks

typedef struct {
  const plaitk_conv_shape *s;
  int64_t rows, channels, pairs;        // of a group
  int64_t in_plane, out_plane;
  int64_t taps, used;                   // taps of the kernel, and those that read the input
  // What a tap reads at the first output position, the offset of what it reads at a column, and its element of the weight.
  int64_t first[MAX_TAPS][3], offset[MAX_TAPS], element[MAX_TAPS];
  int64_t parts, residue[MAX_TAPS][3];  // the parts of the copy
  int64_t images, columns;              // of a block
  int64_t before, part, plane;          // pairs of a part before its first column, of a part, and of all parts
  int64_t m_stride, c_stride;           // of the weight
  int64_t panels, panel;                // of the weights of a group, and the pairs of one
  int64_t row_block, row_blocks, column_block, column_blocks;
  int32_t *copy, *weights;              // [groups * pairs, plane] and [groups * panels, pairs, used, ROWS]
  uint16_t *masks;                      // [columns / LANES, used]
  int64_t fill, fills, packs;           // pairs of channels of a chunk that fills, and chunks that fill and pack
  int64_t block_first, block_size;      // the images of the block under way
  const uint16_t *x, *bias;
  const char *w;
  uint16_t *y;
} job;

// Finds the taps that read the input, and what they read.
static void find_taps(job *j, int back) {
  const plaitk_conv_shape *s = j->s;
  int64_t part[MAX_TAPS];
  for (int64_t t = 0; t < j->taps; t++) {
    int64_t tap[3] = {t / (s->kernel[1] * s->kernel[2]), t / s->kernel[2] % s->kernel[1], t % s->kernel[2]};
    int64_t first[3], residue[3], shift = 0, k = 0;
    int reads = 1;
    for (int d = 0; d < 3; d++) {
      first[d] = tap[d] * s->dilation[d] - s->pad[d];
      int64_t step = floor_div(first[d], s->stride[d]), q = max(0, ceil_div(-first[d], s->stride[d]));
      residue[d] = first[d] - step * s->stride[d];
      shift = shift * s->out[d] + step;
      reads &= q < s->out[d] && q * s->stride[d] + first[d] < s->in[d];
    }
    if (!reads) continue;
    while (k < j->parts && memcmp(j->residue[k], residue, sizeof residue) != 0) k++;
    if (k == j->parts) memcpy(j->residue[j->parts++], residue, sizeof residue);
    memcpy(j->first[j->used], first, sizeof first);
    part[j->used] = k, j->offset[j->used] = shift, j->element[j->used] = back ? j->taps - 1 - t : t;
    j->before = max(j->before, round_up(shift < 0 ? -shift : shift, LANES));
    j->used++;
  }
  int64_t image = s->groups * j->pairs * j->parts * j->out_plane;
  j->images = balance(s->n, COPY_PAIRS / max(1, image));
  j->columns = j->images * j->out_plane;
  j->part = round_up(j->columns, LANES) + 2 * j->before;
  j->plane = j->parts * j->part;
  if (j->plane / LANES % 2 == 0) j->plane += LANES;  // else what a column reads would share few sets of a cache
  for (int64_t u = 0; u < j->used; u++) j->offset[u] += part[u] * j->part;
}

// Writes the masks of a tap for the first columns.
static void find_mask(const job *j, int64_t u, int64_t columns) {
  const plaitk_conv_shape *s = j->s;
  int64_t x = j->first[u][2], left = max(0, ceil_div(-x, s->stride[2]));
  int64_t right = min(s->out[2], ceil_div(s->in[2] - x, s->stride[2]));
  for (int64_t i = 0; i < columns; i += s->out[2]) {
    int64_t row = i / s->out[2], z = row / s->out[1] % s->out[0] * s->stride[0] + j->first[u][0];
    int64_t y = row % s->out[1] * s->stride[1] + j->first[u][1];
    if (z < 0 || z >= s->in[0] || y < 0 || y >= s->in[1]) continue;
    for (int64_t c = i + left; c < min(i + right, columns); c++) {
      j->masks[c / LANES * j->used + u] |= (uint16_t)(1u << c % LANES);
    }
  }
}

static void find_masks(const job *j) {
  int64_t vectors = ceil_div(j->columns, LANES), period = j->out_plane;  // columns after which masks repeat
  while (period % LANES != 0 && period < j->columns) period += j->out_plane;
  memset(j->masks, 0, (size_t)(vectors * j->used) * sizeof *j->masks);
  for (int64_t u = 0; u < j->used; u++) find_mask(j, u, min(period, j->columns));
  for (int64_t v = period / LANES; period < j->columns && v < vectors; v++) {
    memcpy(j->masks + v * j->used, j->masks + (v - period / LANES) * j->used, (size_t)j->used * sizeof *j->masks);
  }
  for (int64_t c = j->columns; c < vectors * LANES; c++) {
    for (int64_t u = 0; u < j->used; u++) j->masks[c / LANES * j->used + u] &= (uint16_t)~(1u << c % LANES);
  }
}

// Cuts the product into chunks.
static void cut(job *j) {
  int64_t row_block = ROW_BYTES / (j->panel * (int64_t)sizeof *j->weights) * ROWS, column_block = COLUMNS;
  for (;;) {
    j->row_block = round_up(balance(j->rows, row_block), ROWS), j->row_blocks = ceil_div(j->rows, j->row_block);
    j->column_block = round_up(balance(j->columns, column_block), 2 * LANES);
    j->column_blocks = ceil_div(j->columns, j->column_block);
    if (j->row_blocks * j->column_blocks * j->s->groups >= CHUNKS) return;
    if (j->column_block > 4 * LANES) column_block = j->column_block / 2;
    else if (j->row_block > 2 * ROWS) row_block = j->row_block / 2;
    else return;
  }
}

// Lays out the job in scratch. With scratch == NULL it writes nothing. Returns the bytes needed.
static int64_t plan(job *j, const plaitk_conv_shape *s, int back, char *scratch) {
  char *at = scratch;
  j->s = s;
  j->channels = s->cin / s->groups, j->rows = s->cout / s->groups, j->pairs = ceil_div(j->channels, 2);
  j->in_plane = volume(s->in), j->out_plane = volume(s->out), j->taps = volume(s->kernel);
  j->m_stride = back ? j->taps : j->channels * j->taps;
  j->c_stride = back ? j->rows * j->taps : j->taps;
  find_taps(j, back);
  j->panels = ceil_div(j->rows, ROWS), j->panel = j->pairs * j->used * ROWS;
  cut(j);
  j->fill = ceil_div(FILL_PAIRS, j->parts * j->columns), j->fills = ceil_div(s->groups * j->pairs, j->fill);
  j->packs = s->groups * ceil_div(j->rows, LANES);
  j->masks = plait_carve(&at, ceil_div(j->columns, LANES) * j->used * (int64_t)sizeof *j->masks);
  j->copy = plait_carve(&at, s->groups * j->pairs * j->plane * (int64_t)sizeof *j->copy);
  j->weights = plait_carve(&at, s->groups * j->panels * j->panel * (int64_t)sizeof *j->weights);
  if (scratch != NULL) find_masks(j);
  return (int64_t)((intptr_t)at - (intptr_t)scratch);
}

// Copies a plane of two channels to its parts.
LOCAL void fill_plane(const job *j, const uint16_t *a, const uint16_t *b, int32_t *to) {
  const int64_t *in = j->s->in, *out = j->s->out, *step = j->s->stride;
  if (volume(step) == 1 && memcmp(in + 1, out + 1, 2 * sizeof *in) == 0) {
    join(to, a, b, 1, j->in_plane);
    return;
  }
  for (int64_t k = 0; k < j->parts; k++, to += j->part) {
    const int64_t *r = j->residue[k];
    for (int64_t z = r[0]; z < in[0]; z += step[0]) {
      for (int64_t y = r[1]; y < in[1]; y += step[1]) {
        int64_t from = (z * in[1] + y) * in[2] + r[2];
        join(to + (z / step[0] * out[1] + y / step[1]) * out[2], a + from, b != NULL ? b + from : NULL, step[2],
             max(0, ceil_div(in[2] - r[2], step[2])));
      }
    }
  }
}

VECTORS static void fill_chunk(const job *j, int64_t chunk) {
  for (int64_t q = chunk * j->fill; q < min((chunk + 1) * j->fill, j->s->groups * j->pairs); q++) {
    int64_t c = q % j->pairs * 2, channel = q / j->pairs * j->channels + c;
    for (int64_t i = 0; i < j->block_size; i++) {
      const uint16_t *a = j->x + ((j->block_first + i) * j->s->cin + channel) * j->in_plane;
      int32_t *to = j->copy + q * j->plane + j->before + i * j->out_plane;
      fill_plane(j, a, c + 1 < j->channels ? a + j->in_plane : NULL, to);
    }
  }
}

VECTORS static void pack_chunk(const job *j, int64_t chunk) {
  int64_t chunks = j->packs / j->s->groups, g = chunk / chunks, m = chunk % chunks * LANES;
  int64_t rows = min(LANES, j->rows - m), from = g * j->rows * j->channels * j->taps + m * j->m_stride;
  int32_t *to = j->weights + (g * j->panels + m / ROWS) * j->panel;
  if (j->s->rounded) {
    pack_rows(to, j->panel, j->w + from * 4, true, rows, j->m_stride, j->channels, j->c_stride, j->taps, j->element,
              j->used);
  } else {
    pack_rows(to, j->panel, j->w + from * 2, false, rows, j->m_stride, j->channels, j->c_stride, j->taps, j->element,
              j->used);
  }
}

static void prepare_chunk(void *arg, int64_t chunk) {
  const job *j = arg;
  if (chunk < j->fills) fill_chunk(j, chunk);
  else pack_chunk(j, chunk - j->fills);
}

// Columns of a tile that are in one image: the first one, how many, and where they are in a channel of y.
typedef struct {
  int64_t column, count, to;
} run;

static int find_runs(const job *j, int64_t column, int64_t count, run *runs) {
  int n = 0;
  for (int64_t i = 0; i < count; i += runs[n++].count) {
    int64_t image = (column + i) / j->out_plane, at = (column + i) % j->out_plane;
    runs[n] = (run){i, min(count - i, j->out_plane - at), (j->block_first + image) * j->s->cout * j->out_plane + at};
  }
  return n;
}

// Writes the sums of rows that start with a channel.
LOCAL void store_rows(const job *j, int64_t channel, int64_t rows, const run *runs, int count, __m512 sums[ROWS][2]) {
#pragma GCC unroll 8
  for (int i = 0; i < ROWS; i++) {
    if (i >= rows) break;
    __m512 bias = _mm512_setzero_ps();
    if (j->bias != NULL) bias = _mm512_set1_ps(plait_bf16_to_f32(j->bias[channel + i]));
    uint16_t line[2 * LANES], *y = j->y + (channel + i) * j->out_plane, *to = line;
    int whole = count == 1 && runs->count == 2 * LANES;
    if (whole) to = y + runs->to;
    _mm256_storeu_si256((void *)to, round_sums(_mm512_add_ps(sums[i][0], bias)));
    _mm256_storeu_si256((void *)(to + LANES), round_sums(_mm512_add_ps(sums[i][1], bias)));
    for (int k = 0; !whole && k < count; k++) {
      memcpy(y + runs[k].to, line + runs[k].column, (size_t)runs[k].count * sizeof *y);
    }
  }
}

VECTORS static void multiply_chunk(void *arg, int64_t chunk) {
  const job *j = arg;
  int64_t m0 = chunk % j->row_blocks * j->row_block, c0 = chunk / j->row_blocks % j->column_blocks * j->column_block;
  int64_t g = chunk / (j->row_blocks * j->column_blocks), columns = j->block_size * j->out_plane;
  for (int64_t c = c0; c < min(c0 + j->column_block, columns); c += 2 * LANES) {
    run runs[2 * LANES];
    int64_t count = min(2 * LANES, columns - c);
    int n = find_runs(j, c, count, runs);
    const int32_t *b = j->copy + g * j->pairs * j->plane + j->before + c;
    for (int64_t m = m0; m < min(m0 + j->row_block, j->rows); m += ROWS) {
      const int32_t *a = j->weights + (g * j->panels + m / ROWS) * j->panel;
      const uint16_t *masks = j->masks + c / LANES * j->used;
      __m512 sums[ROWS][2];
      if (count > LANES) multiply_rows(2, j->pairs, j->used, a, b, j->plane, j->offset, masks, sums);
      else multiply_rows(1, j->pairs, j->used, a, b, j->plane, j->offset, masks, sums);
      store_rows(j, g * j->rows + m, j->rows - m, runs, n, sums);
    }
  }
}

// The input gradient with stride 1 as a forward pass.
static plaitk_conv_shape turned(const plaitk_conv_shape *s) {
  plaitk_conv_shape t = *s;
  t.cin = s->cout, t.cout = s->cin;
  for (int d = 0; d < 3; d++) {
    t.in[d] = s->out[d], t.out[d] = s->in[d];
    t.pad[d] = (s->kernel[d] - 1) * s->dilation[d] - s->pad[d];
  }
  return t;
}

int64_t plaitk_conv_pairs_scratch(const plaitk_conv_shape *s, plaitk_conv_pass pass) {
  plaitk_conv_shape t = pass == CONV_INPUT_GRAD ? turned(s) : *s;
  job j = {0};
  return plan(&j, &t, pass == CONV_INPUT_GRAD, NULL);
}

void plaitk_conv_by_pairs(plait_pool *pool, const plaitk_conv_shape *s, plaitk_conv_pass pass, const void *from,
                          const void *w, const void *bias, void *to, void *scratch) {
  plaitk_conv_shape t = pass == CONV_INPUT_GRAD ? turned(s) : *s;
  job j = {.x = from, .w = w, .bias = bias, .y = to};
  plan(&j, &t, pass == CONV_INPUT_GRAD, scratch);
  for (; j.block_first < s->n; j.block_first += j.images) {
    j.block_size = min(j.images, s->n - j.block_first);
    plait_parallel(pool, j.fills + (j.block_first == 0 ? j.packs : 0), prepare_chunk, &j);
    plait_parallel(pool, s->groups * j.row_blocks * j.column_blocks, multiply_chunk, &j);
  }
}

int plaitk_conv_suits_pairs(const plaitk_conv_shape *s, plaitk_conv_pass pass) {
  if (s->dtype != PLAIT_BF16 || plaitk_gemm_variant() != PLAITK_GEMM_AVX512_BF16) return 0;
  if (plaitk_conv_micro_for(0)->lanes != LANES) return 0;  // AVX-512 is not to be used
  if (pass == CONV_WEIGHT_GRAD || (pass == CONV_INPUT_GRAD && volume(s->stride) != 1)) return 0;
  plaitk_conv_shape t = pass == CONV_INPUT_GRAD ? turned(s) : *s;
  int64_t taps = volume(t.kernel);
  for (int d = 0; d < 3; d++) {
    if (t.out[d] < ceil_div(t.in[d], t.stride[d])) return 0;  // the lines of a part
  }
  // Fewer columns do not repay packed weights.
  return taps > 1 && taps <= MAX_TAPS && min(t.cin, t.cout) / t.groups >= 16 && volume(t.in) > 0 &&
         t.n * volume(t.out) >= 2 * LANES;
}

#else

int plaitk_conv_suits_pairs(const plaitk_conv_shape *s, plaitk_conv_pass pass) { return (void)s, (void)pass, 0; }
int64_t plaitk_conv_pairs_scratch(const plaitk_conv_shape *s, plaitk_conv_pass pass) { return (void)s, (void)pass, 0; }
void plaitk_conv_by_pairs(plait_pool *pool, const plaitk_conv_shape *s, plaitk_conv_pass pass, const void *from,
                          const void *w, const void *bias, void *to, void *scratch) {
  (void)pool, (void)s, (void)pass, (void)from, (void)w, (void)bias, (void)to, (void)scratch;
}

#endif
