// Convolutions of each channel with a kernel of its own.
//
// The planes of a channel, of some images, are copied with zeros around them, in a plane for each residue of the
// positions modulo the stride (see lattice.h). Then one tap reads all positions of all images as one run. Sums on the
// padding between rows and images are discarded. The zeros stay while the next channel takes the place of the last.
#include "passes.h"

#include <math.h>

#include "lattice.h"
#include "../../../include/plait_slots.h"

#define min plaitk_conv_min
#define max plaitk_conv_max
#define ceil_div plaitk_conv_ceil
#define round_up plaitk_conv_round
#define floor_div plaitk_conv_floor
#define volume plaitk_conv_volume

#define COPY_ELEMENTS (8 << 10)   // of a block of images
#define MAX_ELEMENTS (32 << 10)   // of one image
#define CHUNK_ELEMENTS (32 << 10)
#define DOT_VECTORS 128           // that are summed in one accumulator

// The elements of an image that a plane of the copy holds along a dimension: count of them, from `from` on in steps, at
// `to` and after it.
typedef struct {
  int64_t from, to, count;
} range;

// A lattice of positions, with its copy of the input. The input gradient has one for each residue.
typedef struct {
  plaitk_conv_lattice lattice;
  int64_t *koff;
  range *ranges[3];  // of the residues in each dimension
  int64_t copy;      // the copy's first element
} part;

typedef struct {
  const plaitk_conv_micro *micro;
  const plaitk_conv_io *io;
  const plaitk_conv_shape *s;
  plaitk_conv_pass pass;
  int64_t parts;
  part *part;
  int64_t *base;    // of vectors: v * lanes
  int64_t in[3], out[3], taps;
  int64_t images;   // of a block
  int64_t blocks, channels, chunks;  // blocks of images; channels of a chunk
  plait_slots slots;
  int64_t copy_elements, run_elements;
  const void *from, *w, *bias;
  void *to;
} job;

// Elements of a copied image in a plane.
static int64_t image_of(const plaitk_conv_lattice *l) {
  return (l->n[0] + l->span[0]) * (l->n[1] + l->span[1]) * l->pitch;
}

// The length of the run of positions of so many images.
static int64_t run_of(const plaitk_conv_lattice *l, int64_t images) {
  int64_t lines = l->n[1] + l->span[1];
  return (images - 1) * image_of(l) + ((l->n[0] - 1) * lines + l->n[1] - 1) * l->pitch + l->n[2];
}

// Returns the elements of a copy with so many images.
static int64_t lay_out(plaitk_conv_lattice *l, int64_t images) {
  l->mode = CONV_FLAT;
  l->channels = 1;
  l->k = volume(l->nt);
  for (int d = 0; d < 3; d++) l->n[d] = l->q[d];
  l->pitch = l->n[2] + l->span[2];
  l->plane = images * image_of(l);
  return volume(l->res) * l->plane;
}

static void lattice_of(plaitk_conv_lattice *l, const plaitk_conv_shape *s, plaitk_conv_pass pass, int64_t i,
                       const int64_t steps[3]) {
  int64_t residue[3] = {i / (steps[1] * steps[2]), i / steps[2] % steps[1], i % steps[2]};
  if (pass == CONV_INPUT_GRAD) {
    plaitk_conv_lattice_input_grad(l, s, residue);
  } else {
    plaitk_conv_lattice_forward(l, s);
  }
}

// Returns the number of lattices, and the residues in each dimension.
static int64_t residues(const plaitk_conv_shape *s, plaitk_conv_pass pass, int64_t steps[3]) {
  for (int d = 0; d < 3; d++) steps[d] = pass == CONV_INPUT_GRAD ? min(s->stride[d], s->in[d]) : 1;
  return volume(steps);
}

// Returns the elements of the copies of one image.
static int64_t elements(const plaitk_conv_shape *s, plaitk_conv_pass pass) {
  int64_t steps[3], count = residues(s, pass, steps), sum = 0;
  for (int64_t i = 0; i < count; i++) {
    plaitk_conv_lattice l;
    lattice_of(&l, s, pass, i, steps);
    sum += lay_out(&l, 1);
  }
  return sum;
}

int plaitk_conv_suits_depthwise(const plaitk_conv_shape *s, plaitk_conv_pass pass) {
  if (s->groups != s->cin || s->groups != s->cout || s->n * volume(s->in) * volume(s->out) == 0) return 0;
  return elements(s, pass) <= MAX_ELEMENTS;
}

static range range_of(const plaitk_conv_lattice *l, int d, int64_t residue) {
  int64_t step = l->in_step[d], offset = l->off0[d] + residue * l->off_step[d];
  int64_t start = offset - (floor_div(offset, step) - l->amin[d]) * step, n = l->n[d] + l->span[d];
  range r = {.to = start < 0 ? ceil_div(-start, step) : 0};
  r.from = start + r.to * step;
  r.count = max(0, min(n - r.to, ceil_div(l->size[d] - r.from, step)));
  return r;
}

// Lays out the job in scratch. With scratch == NULL it writes nothing. Returns the bytes needed.
static int64_t plan(job *j, const plaitk_conv_shape *s, plaitk_conv_pass pass, int64_t threads, char *scratch) {
  char *at = scratch;
  j->io = plaitk_conv_io_for(s->dtype);
  j->micro = plaitk_conv_micro_for(s->dtype == PLAIT_F64);
  j->s = s, j->pass = pass;
  int64_t lanes = j->micro->lanes, size = j->io->compute_size, steps[3];
  memcpy(j->in, pass == CONV_INPUT_GRAD ? s->out : s->in, sizeof j->in);
  memcpy(j->out, pass == CONV_INPUT_GRAD ? s->in : s->out, sizeof j->out);
  j->taps = volume(s->kernel);
  j->images = min(s->n, max(1, COPY_ELEMENTS / max(1, elements(s, pass))));
  j->blocks = ceil_div(s->n, j->images);
  j->parts = residues(s, pass, steps);
  j->part = plait_carve(&at, j->parts * (int64_t)sizeof *j->part);
  for (int64_t i = 0; i < j->parts; i++) {
    part local, *p = scratch ? &j->part[i] : &local;
    lattice_of(&p->lattice, s, pass, i, steps);
    p->copy = j->copy_elements;
    // A vector may extend past the run.
    j->copy_elements += round_up(lay_out(&p->lattice, j->images) + lanes, lanes);
    j->run_elements = max(j->run_elements, round_up(run_of(&p->lattice, j->images), lanes));
    for (int d = 0; d < 3; d++) {
      p->ranges[d] = plait_carve(&at, p->lattice.res[d] * (int64_t)sizeof(range));
      for (int64_t r = 0; scratch && r < p->lattice.res[d]; r++) p->ranges[d][r] = range_of(&p->lattice, d, r);
    }
    int64_t koff = round_up(p->lattice.k, j->micro->dots[1].cols);  // a tile of dots reads whole rows
    p->koff = plait_carve(&at, koff * (int64_t)sizeof *p->koff);
    if (scratch) {
      memset(p->koff, 0, (size_t)koff * sizeof *p->koff);
      plaitk_conv_lattice_koff(&p->lattice, p->koff);
    }
  }
  j->base = plait_carve(&at, j->run_elements / lanes * (int64_t)sizeof *j->base);
  for (int64_t v = 0; scratch && v < j->run_elements / lanes; v++) j->base[v] = v * lanes;
  j->channels = ceil_div(CHUNK_ELEMENTS, j->copy_elements + j->run_elements);
  j->chunks = ceil_div(s->groups, j->channels) * (pass == CONV_WEIGHT_GRAD ? 1 : j->blocks);
  int64_t bytes = (j->copy_elements + j->run_elements + round_up(j->taps, 16)) * size;
  plait_slots_plan(&j->slots, &at, max(1, min(threads, j->chunks)), bytes, scratch != NULL);
  return (int64_t)((intptr_t)at - (intptr_t)scratch);
}

// Copies a channel of a block of images.
static void fill(const job *j, const part *p, int64_t first, int64_t images, int64_t channel, char *copy) {
  const plaitk_conv_lattice *l = &p->lattice;
  int64_t size = j->io->compute_size, lines = l->n[1] + l->span[1], r[3], plane = 0;
  int64_t copied = image_of(l), image_bytes = volume(j->in) * j->io->size;
  for (r[0] = 0; r[0] < l->res[0]; r[0]++) {
    for (r[1] = 0; r[1] < l->res[1]; r[1]++) {
      for (r[2] = 0; r[2] < l->res[2]; r[2]++, plane += l->plane) {
        range z = p->ranges[0][r[0]], y = p->ranges[1][r[1]], x = p->ranges[2][r[2]];
        if (y.count <= 0 || x.count <= 0) continue;
        for (int64_t i = 0; i < images; i++) {
          const char *image = (const char *)j->from + ((first + i) * j->s->groups + channel) * image_bytes;
          for (int64_t k = 0; k < z.count; k++) {
            int64_t to = plane + i * copied + ((z.to + k) * lines + y.to) * l->pitch + x.to;
            int64_t from = ((z.from + k * l->in_step[0]) * j->in[1] + y.from) * j->in[2] + x.from;
            j->io->spread(copy + to * size, l->pitch, image + from * j->io->size, l->in_step[1] * j->in[2],
                          l->in_step[2], y.count, x.count);
          }
        }
      }
    }
  }
}

// Sums the taps of a channel at all positions, into `sums`.
static void multiply(const job *j, const part *p, int64_t images, const char *w, const char *copy, char *sums) {
  const plaitk_conv_micro *micro = j->micro;
  int h = micro->heights - 1;  // a row
  int64_t vectors = ceil_div(run_of(&p->lattice, images), micro->lanes);
  for (int64_t v = 0; v < vectors;) {
    int i = 0;
    while (micro->taps[h].vectors[i] > vectors - v) i++;
    char *to = sums + v * micro->lanes * j->io->compute_size;
    micro->taps[h].fn[i](p->lattice.k, w, p->koff, copy, j->base + v, to, 0, 0, CONV_CHAIN);
    v += micro->taps[h].vectors[i];
  }
}

static void store(const job *j, const plaitk_conv_lattice *l, int64_t first, int64_t images, int64_t channel,
                  const char *sums) {
  int64_t size = j->io->compute_size, lines = l->n[1] + l->span[1];
  int64_t copied = image_of(l), image = volume(j->out);
  const char *bias = j->bias ? (const char *)j->bias + channel * j->io->size : NULL;
  for (int64_t i = 0; i < images; i++) {
    int64_t plane = ((first + i) * j->s->groups + channel) * image;
    for (int64_t z = 0; z < l->n[0]; z++) {
      int64_t line = (z * l->out_step[0] + l->out_start[0]) * j->out[1] + l->out_start[1];
      int64_t to = plane + line * j->out[2] + l->out_start[2];
      j->io->store((char *)j->to + to * j->io->size, l->out_step[1] * j->out[2], l->out_step[2],
                   sums + (i * copied + z * lines * l->pitch) * size, l->pitch, l->n[1], l->n[2], bias);
    }
  }
}

// Converts the weights of the lattice's taps.
static void weights(const job *j, const plaitk_conv_lattice *l, int64_t channel, char *w) {
  const int64_t *kernel = j->s->kernel;
  for (int64_t z = 0; z < l->nt[0]; z++) {
    int64_t tap = ((l->tap0[0] + z * l->tap_step[0]) * kernel[1] + l->tap0[1]) * kernel[2] + l->tap0[2];
    j->io->spread(w + z * l->nt[1] * l->nt[2] * j->io->compute_size, l->nt[2],
                  (const char *)j->w + (channel * j->taps + tap) * j->io->size, l->tap_step[1] * kernel[2],
                  l->tap_step[2], l->nt[1], l->nt[2]);
  }
}

static void taps_chunk(void *arg, int64_t chunk) {
  const job *j = arg;
  int64_t slot = plait_slot_acquire(&j->slots), size = j->io->compute_size;
  char *copies = j->slots.bytes + slot * j->slots.size, *sums = copies + j->copy_elements * size;
  char *w = sums + j->run_elements * size;
  memset(copies, 0, (size_t)(j->copy_elements * size));
  int64_t first = chunk % j->blocks * j->images, images = min(j->images, j->s->n - first);
  int64_t begin = chunk / j->blocks * j->channels, end = min(begin + j->channels, j->s->groups);
  for (int64_t c = begin; c < end; c++) {
    for (int64_t i = 0; i < j->parts; i++) {
      const part *p = &j->part[i];
      char *copy = copies + p->copy * size;
      fill(j, p, first, images, c, copy);
      weights(j, &p->lattice, c, w);
      multiply(j, p, images, w, copy, sums);
      store(j, &p->lattice, first, images, c, sums);
    }
  }
  plait_slot_release(&j->slots, slot);
}

// Copies dy of a channel of a block of images to a run, with zeros between rows and images.
static void fill_run(const job *j, int64_t first, int64_t images, int64_t channel, char *run) {
  const plaitk_conv_lattice *l = &j->part->lattice;
  int64_t size = j->io->compute_size, lines = l->n[1] + l->span[1];
  for (int64_t i = 0; i < images; i++) {
    for (int64_t z = 0; z < l->n[0]; z++) {
      int64_t row = (((first + i) * j->s->groups + channel) * j->out[0] + z) * j->out[1] * j->out[2];
      j->io->spread(run + (i * image_of(l) + z * lines * l->pitch) * size, l->pitch,
                    (const char *)j->w + row * j->io->size, j->out[2], 1, l->n[1], l->n[2]);
    }
  }
}

static int all_finite(const char *sums, int64_t count, int64_t size) {
  int all = 1;
  for (int64_t i = 0; i < count; i++) {
    all &= isfinite(size == 8 ? ((const double *)sums)[i] : (double)((const float *)sums)[i]) != 0;
  }
  return all;
}

// The products of the positions alone, without the zeros of the run.
#define DOTS(T)                                                                                               \
  static void dots_##T(const job *j, int64_t images, const char *run, const char *copy, char *sums) {         \
    const plaitk_conv_lattice *l = &j->part->lattice;                                                         \
    int64_t lines = l->n[1] + l->span[1];                                                                     \
    for (int64_t k = 0; k < l->k; k++) {                                                                      \
      double sum = ((const T *)sums)[k];                                                                      \
      for (int64_t line = 0; line < images * l->n[0] * l->n[1]; line++) {                                     \
        int64_t i = line / (l->n[0] * l->n[1]), z = line / l->n[1] % l->n[0], y = line % l->n[1];             \
        int64_t at = i * image_of(l) + (z * lines + y) * l->pitch;                                            \
        const T *dy = (const T *)run + at, *x = (const T *)copy + at + j->part->koff[k];                      \
        for (int64_t p = 0; p < l->n[2]; p++) sum += (double)dy[p] * (double)x[p];                            \
      }                                                                                                       \
      ((T *)sums)[k] = (T)sum;                                                                                \
    }                                                                                                         \
  }

DOTS(float)
DOTS(double)

// The gradient of the weight: the run of dy times that of each tap. The zeros between rows and images meet what other
// taps read there, and with an infinity make NaN; so sums that are not finite are made again.
static void dots_chunk(void *arg, int64_t chunk) {
  const job *j = arg;
  const plaitk_conv_micro *micro = j->micro;
  const plaitk_conv_lattice *l = &j->part->lattice;
  int64_t slot = plait_slot_acquire(&j->slots), size = j->io->compute_size;
  char *copy = j->slots.bytes + slot * j->slots.size, *run = copy + j->copy_elements * size;
  char *sums = run + j->run_elements * size;
  memset(copy, 0, (size_t)((j->copy_elements + j->run_elements) * size));
  int64_t begin = chunk * j->channels, end = min(begin + j->channels, j->s->groups), cols = micro->dots[1].cols;
  for (int64_t c = begin; c < end; c++) {
    for (int careful = 0; careful < 2; careful++) {
      memset(sums, 0, (size_t)(j->taps * size));
      for (int64_t first = 0; first < j->s->n; first += j->images) {
        int64_t images = min(j->images, j->s->n - first);
        fill(j, j->part, first, images, c, copy);
        fill_run(j, first, images, c, run);
        if (careful) {
          (size == 8 ? dots_double : dots_float)(j, images, run, copy, sums);
          continue;
        }
        int64_t length = run_of(l, images), vectors = ceil_div(length, micro->lanes);
        memset(run + length * size, 0, (size_t)((vectors * micro->lanes - length) * size));
        for (int64_t v = 0; v < vectors; v += DOT_VECTORS) {
          for (int64_t k = 0; k < l->k; k += cols) {
            micro->dots[1].fn(min(DOT_VECTORS, vectors - v), run + v * micro->lanes * size, 0, copy, j->base + v,
                              j->part->koff + k, sums + k * size, 0, 1, min(cols, l->k - k));
          }
        }
      }
      if (all_finite(sums, j->taps, size)) break;
    }
    j->io->store((char *)j->to + c * j->taps * j->io->size, 0, 1, sums, 0, 1, j->taps, NULL);
  }
  plait_slot_release(&j->slots, slot);
}

int64_t plaitk_conv_depthwise_scratch(const plait_pool *pool, const plaitk_conv_shape *s, plaitk_conv_pass pass) {
  job j = {0};
  return plan(&j, s, pass, plait_pool_threads(pool), NULL);
}

void plaitk_conv_by_depthwise(plait_pool *pool, const plaitk_conv_shape *s, plaitk_conv_pass pass, const void *from,
                              const void *w, const void *bias, void *to, void *scratch) {
  job j = {.from = from, .w = w, .bias = bias, .to = to};
  plan(&j, s, pass, plait_pool_threads(pool), scratch);
  plait_parallel(pool, j.chunks, pass == CONV_WEIGHT_GRAD ? dots_chunk : taps_chunk, &j);
}
