// The forward pass and the input gradient of 3 x 3 kernels with stride 1, by the minimal filtering F(2 x 2, 3 x 3) of
// Lavin and Gray, "Fast Algorithms for Convolutional Neural Networks" (2015):
//
//   y = A^T [ sum over channels c of (G w[m, c] G^T) * (B^T x[c] B) ] A      for each tile of 2 x 2 positions
//
// It takes 16 multiplications where taps take 36. A tile reads 4 x 4 elements of x, of which the next one reads two
// columns again. So x is copied to a plane for each parity of row and column. In these, element (i, j) of all tiles of a
// line is a contiguous run, and both transforms are sums of such runs. A line has a position more than tiles, whose
// result is not used.
//
// Sums of few terms keep the rounding error at that of a direct sum of all. A result reads no other elements than a
// direct sum does. But the transforms subtract, so that infinities become NaN and large numbers overflow: if a result is
// not finite, taps compute all anew.
#include <stdatomic.h>

#include "lattice.h"
#include "passes.h"
#include "../../../include/plait_slots.h"

#define min plaitk_conv_min
#define max plaitk_conv_max
#define ceil_div plaitk_conv_ceil
#define round_up plaitk_conv_round

#define POSITIONS 128              // of a block, at most, unless a single line has more
#define ROW_BLOCK 256              // rows that are summed from one transformed block of the input, at most
#define CHUNKS 16                  // blocks and groups from which rows are not split for the sake of threads
#define CHAIN 16                   // products that are summed before the sum is added to the rest
#define SHARED_ELEMENTS (8 << 20)  // of the transformed input that blocks of rows share, at most
#define PART_ELEMENTS (64 << 10)   // of the transformed input that a chunk writes for others, at least

typedef struct {
  const plaitk_conv_micro *micro;
  const plaitk_conv_io *io;
  int64_t images, groups, rows, channels;  // rows and channels are those of one group
  int64_t in[2], out[2], pad[2];           // of the pass: what it reads and writes
  int64_t tiles[2];                        // of an image, down and across
  int64_t line;                            // positions of a line of tiles
  int64_t block_images, block_lines;       // images of a block, and lines of tiles of each
  int64_t blocks[2];                       // of images, and of lines in an image
  int64_t row_block, row_blocks;
  int64_t plane;                           // elements of a parity plane
  int64_t positions;                       // of a block, in whole vectors
  int64_t panels, group_weights;           // panels of a group, and elements of them all for one of the 16 products
  float *weights;                          // [groups, 16, group_weights]
  // The transformed input of each block and group, if blocks of rows share it. NULL: chunks transform their own.
  float *inputs;
  int64_t part, parts;                     // channels that a chunk transforms of it, and the chunks of a block and group
  int64_t *koff, *base;
  plaitk_conv_weights layout;
  plait_slots slots;
  int64_t planes_size, input_size, sums_size, result_size;  // elements in a slot
  const void *from, *w, *bias;
  void *to;
  atomic_int infinite;  // a result is not finite
} job;

typedef float quad __attribute__((vector_size(16), aligned(4), may_alias));

static int64_t plan(job *j, const plaitk_conv_shape *s, plaitk_conv_pass pass, int64_t threads, char *scratch) {
  int back = pass == CONV_INPUT_GRAD;
  char *at = scratch;
  j->micro = plaitk_conv_micro_for(0);
  j->io = plaitk_conv_io_for(s->dtype);
  j->images = s->n, j->groups = s->groups;
  j->rows = (back ? s->cin : s->cout) / s->groups;
  j->channels = (back ? s->cout : s->cin) / s->groups;
  for (int d = 0; d < 2; d++) {
    j->in[d] = back ? s->out[d + 1] : s->in[d + 1];
    j->out[d] = back ? s->in[d + 1] : s->out[d + 1];
    j->pad[d] = back ? 2 - s->pad[d + 1] : s->pad[d + 1];
    j->tiles[d] = ceil_div(j->out[d], 2);
  }
  j->line = j->tiles[1] + 1;
  j->block_lines = plaitk_conv_balance(j->tiles[0], POSITIONS / j->line);
  j->block_images = j->block_lines < j->tiles[0] ? 1 : plaitk_conv_balance(j->images, POSITIONS / (j->line * j->tiles[0]));
  j->blocks[0] = ceil_div(j->images, j->block_images), j->blocks[1] = ceil_div(j->tiles[0], j->block_lines);
  int64_t chunks = j->blocks[0] * j->blocks[1] * j->groups;
  j->row_block = round_up(plaitk_conv_balance(j->rows, chunks >= CHUNKS ? ROW_BLOCK : max(64, ROW_BLOCK * chunks / CHUNKS)), 8);
  j->row_blocks = ceil_div(j->rows, j->row_block);
  int lanes = j->micro->lanes, tall = j->micro->taps[0].rows;
  j->plane = round_up((j->block_lines + 1) * j->line + 1 + lanes, lanes);
  j->positions = round_up(j->block_images * j->block_lines * j->line, lanes);
  int64_t tail = j->rows % tall;
  j->panels = ceil_div(j->rows, tall);
  j->group_weights = (j->rows - tail + (tail > 0 ? j->micro->taps[plaitk_conv_height(j->micro, tail)].rows : 0)) * j->channels;
  j->weights = plait_carve(&at, j->groups * 16 * j->group_weights * (int64_t)sizeof(float));
  j->part = min(j->channels, ceil_div(PART_ELEMENTS, 16 * j->positions)), j->parts = ceil_div(j->channels, j->part);
  j->inputs = NULL;
  int64_t input = 16 * j->channels * j->positions;
  int shared = j->row_blocks > 1 && chunks * input <= SHARED_ELEMENTS;
  if (shared) j->inputs = plait_carve(&at, chunks * input * (int64_t)sizeof(float));
  j->koff = plait_carve(&at, j->channels * (int64_t)sizeof(int64_t));
  j->base = plait_carve(&at, j->positions / lanes * (int64_t)sizeof(int64_t));
  for (int64_t c = 0; scratch != NULL && c < j->channels; c++) j->koff[c] = c * j->positions;
  for (int64_t v = 0; scratch != NULL && v < j->positions / lanes; v++) j->base[v] = v * lanes;
  int64_t taps = 9, first = back ? 2 : 0, step = back ? -1 : 1;
  j->layout = (plaitk_conv_weights){
      .m_stride = back ? taps : j->channels * taps, .c_stride = back ? j->rows * taps : taps, .channels = j->channels,
      .kernel = {1, 3, 3}, .nt = {1, 3, 3}, .tap0 = {0, first, first}, .tap_step = {1, step, step},
  };
  j->planes_size = 4 * j->plane;
  j->input_size = shared ? 0 : input;
  j->sums_size = 16 * j->row_block * j->positions;
  j->result_size = 4 * j->positions;
  int64_t floats = j->planes_size + j->input_size + j->sums_size + j->result_size;
  floats = max(floats, 9 * j->channels * tall);  // a panel of weights before its transform
  int64_t most = chunks * j->row_blocks + j->panels * j->groups;
  plait_slots_plan(&j->slots, &at, max(1, min(threads, most)), floats * (int64_t)sizeof(float), scratch != NULL);
  return (int64_t)((intptr_t)at - (intptr_t)scratch);
}

// u[f] = (G w G^T)[f] of one channel, for the rows of a panel. The 16 results are `stride` apart.
PLAIT_INLINE void transform_weight(const float *restrict w, int64_t rows, float *restrict u, int64_t stride) {
  _Pragma("omp simd") for (int64_t i = 0; i < rows; i++) {
    float t[4][3];
    for (int x = 0; x < 3; x++) {
      float a = w[x * rows + i], b = w[(3 + x) * rows + i], c = w[(6 + x) * rows + i];
      t[0][x] = a;
      t[1][x] = (a + c + b) * 0.5f;
      t[2][x] = (a + c - b) * 0.5f;
      t[3][x] = c;
    }
    for (int y = 0; y < 4; y++) {
      float a = t[y][0], b = t[y][1], c = t[y][2];
      u[(4 * y) * stride + i] = a;
      u[(4 * y + 1) * stride + i] = (a + c + b) * 0.5f;
      u[(4 * y + 2) * stride + i] = (a + c - b) * 0.5f;
      u[(4 * y + 3) * stride + i] = c;
    }
  }
}

PLAIT_CLONES static void transform_weights(const float *w, int64_t channels, int64_t rows, float *u, int64_t stride) {
  for (int64_t c = 0; c < channels; c++, w += 9 * rows, u += rows) {
    if (rows == 8) transform_weight(w, 8, u, stride);
    else if (rows == 4) transform_weight(w, 4, u, stride);
    else transform_weight(w, rows, u, stride);
  }
}

// v[f] = (B^T x B)[f] at n positions, from the planes of x. The 16 results are `stride` apart.
PLAIT_CLONES static void transform_input(const float *restrict x, int64_t plane, int64_t line, int64_t n,
                                         float *restrict v, int64_t stride) {
  _Pragma("omp simd") for (int64_t p = 0; p < n; p++) {
    float t[4][4];
    for (int c = 0; c < 4; c++) {
      const float *even = x + (c & 1) * plane + (c >> 1) + p, *odd = even + 2 * plane;
      float a = even[0], b = odd[0], d = even[line], e = odd[line];
      t[0][c] = a - d;
      t[1][c] = b + d;
      t[2][c] = d - b;
      t[3][c] = b - e;
    }
    for (int r = 0; r < 4; r++) {
      v[(4 * r) * stride + p] = t[r][0] - t[r][2];
      v[(4 * r + 1) * stride + p] = t[r][1] + t[r][2];
      v[(4 * r + 2) * stride + p] = t[r][2] - t[r][1];
      v[(4 * r + 3) * stride + p] = t[r][1] - t[r][3];
    }
  }
}

// y[2 * r + c] = (A^T s A)[r, c] at n positions. Returns zero, or NaN if a result is not finite.
PLAIT_CLONES static float transform_sums(const float *restrict s, int64_t stride, int64_t n, float *restrict y,
                                         int64_t y_stride) {
  float check = 0;
  _Pragma("omp simd reduction(+ : check)") for (int64_t p = 0; p < n; p++) {
    float t[2][4];
    for (int c = 0; c < 4; c++) {
      float a = s[c * stride + p], b = s[(4 + c) * stride + p], d = s[(8 + c) * stride + p], e = s[(12 + c) * stride + p];
      t[0][c] = a + b + d;
      t[1][c] = b - d - e;
    }
    for (int r = 0; r < 2; r++) {
      float first = t[r][0] + t[r][1] + t[r][2], second = t[r][1] - t[r][2] - t[r][3];
      y[(2 * r) * y_stride + p] = first;
      y[(2 * r + 1) * y_stride + p] = second;
      check += 0 * first + 0 * second;
    }
  }
  return check;
}

// A block: images, and lines of tiles in each.
typedef struct {
  int64_t image, images, line, lines;
} block;

static block block_of(const job *j, int64_t index) {
  block b = {.image = index / j->blocks[1] * j->block_images, .line = index % j->blocks[1] * j->block_lines};
  b.images = min(j->block_images, j->images - b.image), b.lines = min(j->block_lines, j->tiles[0] - b.line);
  return b;
}

// Returns the transformed input of a block and group that blocks of rows share.
static float *input_of(const job *j, int64_t index, int64_t g) {
  return j->inputs + (index * j->groups + g) * 16 * j->channels * j->positions;
}

// Copies the lines of a block from an image to the planes, whose other elements are zeros.
static void split_parities(const job *j, const block *b, const float *image, float *planes) {
  int64_t first = 2 * b->line - j->pad[0], width = j->in[1];
  int64_t begin = max(0, first), end = min(j->in[0], first + 2 * (b->lines + 1));
  // Column x of the image is column x + pad of the planes together; they end with the last column that a tile reads.
  int64_t pad = j->pad[1], odd = pad & 1;
  int64_t evens = min((width + 1) / 2, j->line - pad / 2), odds = min(width / 2, j->line - (pad + 1) / 2);
  for (int64_t y = begin; y < end; y++) {
    const float *from = image + y * width;
    float *line = planes + ((y - first) & 1) * 2 * j->plane + ((y - first) >> 1) * j->line;
    // Elements 0, 2, ... of the row, then 1, 3, ...
    float *of_evens = line + odd * j->plane + pad / 2, *of_odds = line + !odd * j->plane + (pad + 1) / 2;
    int64_t x = 0;
    for (; x + 4 <= odds; x += 4) {  // rows are often short
      quad low = *(const quad *)(from + 2 * x), high = *(const quad *)(from + 2 * x + 4);
      *(quad *)(of_evens + x) = __builtin_shufflevector(low, high, 0, 2, 4, 6);
      *(quad *)(of_odds + x) = __builtin_shufflevector(low, high, 1, 3, 5, 7);
    }
    for (int64_t i = x; i < evens; i++) of_evens[i] = from[2 * i];
    for (; x < odds; x++) of_odds[x] = from[2 * x + 1];
  }
}

// Transforms channels c0 to c1 - 1 of a block of the input of a group.
static void take_input(const job *j, const block *b, int64_t g, int64_t c0, int64_t c1, float *planes, float *input) {
  int64_t n = b->lines * j->line;
  memset(planes, 0, (size_t)j->planes_size * sizeof *planes);
  for (int64_t c = c0; c < c1; c++) {
    for (int64_t i = 0; i < b->images; i++) {
      int64_t channel = ((b->image + i) * j->groups + g) * j->channels + c;
      split_parities(j, b, (const float *)j->from + channel * j->in[0] * j->in[1], planes);
      // The last image fills the last vector.
      int64_t count = i + 1 < b->images ? n : round_up((i + 1) * n, j->micro->lanes) - i * n;
      transform_input(planes, j->plane, j->line, count, input + c * j->positions + i * n, j->channels * j->positions);
    }
  }
}

// Transforms a panel of the weight.
static void take_weights(const job *j, int64_t chunk, float *taps) {
  int tall = j->micro->taps[0].rows;
  int64_t g = chunk / j->panels, m = chunk % j->panels * tall, count = min(tall, j->rows - m);
  int rows = j->micro->taps[plaitk_conv_height(j->micro, count)].rows;
  j->io->pack(taps, (const char *)j->w + g * j->rows * j->channels * 9 * j->io->size, &j->layout, m, rows, count);
  transform_weights(taps, j->channels, rows, j->weights + g * 16 * j->group_weights + m * j->channels, j->group_weights);
}

static void transform_chunk(void *arg, int64_t chunk) {
  const job *j = arg;
  int64_t slot = plait_slot_acquire(&j->slots), weights = j->panels * j->groups;
  float *floats = (float *)(j->slots.bytes + slot * j->slots.size);
  if (chunk < weights) {
    take_weights(j, chunk, floats);
  } else {
    int64_t part = (chunk - weights) % j->parts, of_block = (chunk - weights) / j->parts, g = of_block % j->groups;
    block b = block_of(j, of_block / j->groups);
    take_input(j, &b, g, part * j->part, min((part + 1) * j->part, j->channels), floats,
               input_of(j, of_block / j->groups, g));
  }
  plait_slot_release(&j->slots, slot);
}

// Computes the 16 products of rows m0 to m1 - 1.
static void multiply(const job *j, int64_t vectors, int64_t g, int64_t m0, int64_t m1, const float *input, float *sums) {
  const plaitk_conv_micro *micro = j->micro;
  int tall = micro->taps[0].rows, lanes = micro->lanes;
  for (int64_t f = 0; f < 16; f++, sums += j->row_block * j->positions) {
    const float *x = input + f * j->channels * j->positions;
    const float *weights = j->weights + (g * 16 + f) * j->group_weights;
    for (int64_t m = m0; m < m1; m += tall) {
      int h = plaitk_conv_height(micro, min(tall, m1 - m));
      const float *a = weights + m * j->channels;
      for (int64_t v = 0; v < vectors;) {
        int i = 0;
        // Two pairs of vectors are faster than three and one.
        if (vectors - v == 4 && micro->taps[h].vectors[0] == 3) i = 1;
        while (micro->taps[h].vectors[i] > vectors - v) i++;
        micro->taps[h].fn[i](j->channels, a, j->koff, x, j->base + v, sums + (m - m0) * j->positions + v * lanes,
                             j->positions, 0, CHAIN);
        v += micro->taps[h].vectors[i];
      }
    }
  }
}

// Writes rows m0 to m1 - 1 of a block. Returns zero, or NaN if a result is not finite.
static float put_result(const job *j, const block *b, int64_t g, int64_t m0, int64_t m1, const float *sums, float *y) {
  int64_t n = b->lines * j->line, stride = j->row_block * j->positions;
  float check = 0;
  for (int64_t m = m0; m < m1; m++, sums += j->positions) {
    check += transform_sums(sums, stride, b->images * n, y, j->positions);
    int64_t channel = g * j->rows + m;
    const char *bias = j->bias ? (const char *)j->bias + channel * j->io->size : NULL;
    for (int64_t i = 0; i < b->images; i++) {
      int64_t plane = ((b->image + i) * j->groups * j->rows + channel) * j->out[0] * j->out[1];
      for (int k = 0; k < 4; k++) {
        int64_t row = 2 * b->line + k / 2, lines = min(b->lines, ceil_div(j->out[0] - row, 2));
        j->io->store((char *)j->to + (plane + row * j->out[1] + k % 2) * j->io->size, 2 * j->out[1], 2,
                     y + k * j->positions + i * n, j->line, lines, (j->out[1] - k % 2 + 1) / 2, bias);
      }
    }
  }
  return check;
}

static void winograd_chunk(void *arg, int64_t chunk) {
  job *j = arg;
  int64_t slot = plait_slot_acquire(&j->slots);
  float *planes = (float *)(j->slots.bytes + slot * j->slots.size), *input = planes + j->planes_size;
  float *sums = input + j->input_size, *result = sums + j->sums_size;
  int64_t m0 = chunk % j->row_blocks * j->row_block, m1 = min(m0 + j->row_block, j->rows);
  chunk /= j->row_blocks;
  int64_t g = chunk % j->groups;
  chunk /= j->groups;
  block b = block_of(j, chunk);
  if (j->inputs != NULL) input = input_of(j, chunk, g);
  else take_input(j, &b, g, 0, j->channels, planes, input);
  multiply(j, ceil_div(b.images * b.lines * j->line, j->micro->lanes), g, m0, m1, input, sums);
  float check = put_result(j, &b, g, m0, m1, sums, result);
  if (check != 0) atomic_store_explicit(&j->infinite, 1, memory_order_relaxed);
  plait_slot_release(&j->slots, slot);
}

int64_t plaitk_conv_winograd_scratch(const plait_pool *pool, const plaitk_conv_shape *s, plaitk_conv_pass pass) {
  job j = {0};
  return max(plan(&j, s, pass, plait_pool_threads(pool), NULL), plaitk_conv_taps_scratch(pool, s, pass));
}

void plaitk_conv_by_winograd(plait_pool *pool, const plaitk_conv_shape *s, plaitk_conv_pass pass, const void *from,
                             const void *w, const void *bias, void *to, void *scratch) {
  job j = {.from = from, .w = w, .bias = bias, .to = to};
  plan(&j, s, pass, plait_pool_threads(pool), scratch);
  int64_t inputs = j.inputs != NULL ? j.blocks[0] * j.blocks[1] * j.groups * j.parts : 0;
  plait_parallel(pool, j.panels * j.groups + inputs, transform_chunk, &j);
  plait_parallel(pool, j.blocks[0] * j.blocks[1] * j.groups * j.row_blocks, winograd_chunk, &j);
  if (j.infinite) plaitk_conv_by_taps(pool, s, pass, from, w, bias, to, scratch);
}

int plaitk_conv_suits_winograd(const plaitk_conv_shape *s, plaitk_conv_pass pass) {
  if (pass == CONV_WEIGHT_GRAD || s->dtype != PLAIT_F32) return 0;
  for (int d = 0; d < 3; d++) {
    if (s->kernel[d] != (d == 0 ? 1 : 3) || s->stride[d] != 1 || s->dilation[d] != 1) return 0;
    if (s->pad[d] > (d == 0 ? 0 : 2) || s->pad[d] < 0 || s->out[d] < 1 || s->in[d] < 1) return 0;
  }
  if (s->in[0] != 1) return 0;
  int64_t tiles = s->n * ceil_div(s->out[1], 2) * ceil_div(s->out[2], 2);
  return min(s->cin, s->cout) / s->groups >= 16 && tiles >= 64;
}
