#include "lattice.h"

#define min plaitk_conv_min
#define max plaitk_conv_max
#define ceil_div plaitk_conv_ceil
#define round_up plaitk_conv_round
#define floor_div plaitk_conv_floor

static int64_t gcd(int64_t a, int64_t b) {
  while (b != 0) {
    int64_t t = a % b;
    a = b;
    b = t;
  }
  return a;
}

static void set_residues(plaitk_conv_lattice *l) {
  for (int d = 0; d < 3; d++) {
    l->res[d] = min(l->nt[d], l->in_step[d] / gcd(l->in_step[d], l->off_step[d] < 0 ? -l->off_step[d] : l->off_step[d]));
    int64_t first = floor_div(l->off0[d], l->in_step[d]);
    int64_t last = floor_div(l->off0[d] + (l->nt[d] - 1) * l->off_step[d], l->in_step[d]);
    if (l->nt[d] == 0) last = first;
    l->amin[d] = min(first, last);
    l->span[d] = max(first, last) - l->amin[d];
  }
}

void plaitk_conv_lattice_forward(plaitk_conv_lattice *l, const plaitk_conv_shape *s) {
  memset(l, 0, sizeof *l);
  for (int d = 0; d < 3; d++) {
    l->q[d] = s->out[d];
    l->out_step[d] = 1;
    l->in_step[d] = s->stride[d];
    l->off0[d] = -s->pad[d];
    l->off_step[d] = s->dilation[d];
    l->nt[d] = s->kernel[d];
    l->tap_step[d] = 1;
    l->size[d] = s->in[d];
  }
  set_residues(l);
}

void plaitk_conv_lattice_input_grad(plaitk_conv_lattice *l, const plaitk_conv_shape *s, const int64_t residue[3]) {
  memset(l, 0, sizeof *l);
  for (int d = 0; d < 3; d++) {
    int64_t step = s->stride[d], at = residue[d] + s->pad[d], dilation = s->dilation[d];
    l->q[d] = ceil_div(s->in[d] - residue[d], step);
    l->out_step[d] = step;
    l->out_start[d] = residue[d];
    l->in_step[d] = 1;
    // The taps t for which at - t * dilation is divisible by step: a first one and every tap_step-th after it.
    l->tap_step[d] = step / gcd(dilation, step);
    int64_t t = 0;
    while (t < l->tap_step[d] && (at - t * dilation) % step != 0) t++;
    if (t < l->tap_step[d] && t < s->kernel[d]) {
      l->tap0[d] = t;
      l->nt[d] = (s->kernel[d] - 1 - t) / l->tap_step[d] + 1;
      l->off0[d] = (at - t * dilation) / step;
    }
    l->off_step[d] = -l->tap_step[d] * dilation / step;
    l->size[d] = s->out[d];
  }
  set_residues(l);
}

// Computes the sizes that follow from mode, nb and n. Returns a rough cost of the whole lattice in cycles.
static double measure(plaitk_conv_lattice *l, int64_t rows, int lanes, int zero_tail) {
  int64_t taps = l->nt[0] * l->nt[1] * l->nt[2];
  int64_t positions;
  double fill;
  l->blocks_b = ceil_div(l->images, l->nb);
  for (int d = 0; d < 3; d++) l->blocks[d] = ceil_div(l->q[d], l->n[d]);
  double blocks = (double)plaitk_conv_lattice_blocks(l);
  if (l->mode == CONV_PACKED) {
    positions = round_up(l->nb * l->n[0] * l->n[1] * l->n[2], lanes);
    l->pitch = l->n[2];
    l->plane = l->image = positions;
    l->channel = taps * positions;
    l->copy = l->channels * l->channel;
    fill = (double)(l->channels * taps) * (positions * 0.3 + l->nb * (30 + l->n[0] * l->n[1] * 6));
  } else {
    int64_t residues = l->res[0] * l->res[1] * l->res[2];
    l->pitch = l->n[2] + l->span[2];
    if (zero_tail) l->pitch = round_up(l->n[2], lanes) + l->span[2];
    int64_t slices = l->n[0] + l->span[0], lines = l->n[1] + l->span[1];
    l->plane = slices * lines * l->pitch;
    l->image = residues * l->plane;
    l->channel = l->nb * l->image;
    l->copy = l->channels * l->channel + lanes;  // the last vector may extend past the end
    if (l->mode == CONV_ROWS) {
      positions = l->nb * l->n[0] * l->n[1] * round_up(l->n[2], lanes);
    } else {
      positions = l->nb * l->n[0] * round_up((l->n[1] - 1) * l->pitch + l->n[2], lanes);
    }
    fill = (double)l->channels * l->nb * residues * (30 + slices * lines * (6 + l->pitch * 0.3));
  }
  l->vectors = positions / lanes;
  return blocks * (fill + (double)positions * rows * l->k / (2 * lanes));
}

static double split_blocks(plaitk_conv_lattice *l, int mode, int64_t rows, int lanes, int64_t positions, int64_t copy,
                  int zero_tail) {
  l->mode = mode;
  l->n[2] = max(1, l->q[2]);
  if (l->q[2] > 2 * positions) l->n[2] = round_up(plaitk_conv_balance(l->q[2], positions), lanes);
  l->n[1] = plaitk_conv_balance(l->q[1], positions / l->n[2]);
  l->n[0] = l->n[1] < l->q[1] ? 1 : plaitk_conv_balance(l->q[0], positions / (l->n[1] * l->n[2]));
  l->nb = l->n[0] < l->q[0] || l->n[1] < l->q[1] || l->n[2] < l->q[2]
              ? 1
              : plaitk_conv_balance(l->images, positions / (l->n[0] * l->n[1] * l->n[2]));
  double cost = measure(l, rows, lanes, zero_tail);
  while (l->copy > copy) {
    if (l->nb > 1) {
      l->nb = plaitk_conv_balance(l->images, l->nb / 2);
    } else if (l->n[0] > 1) {
      l->n[0] = plaitk_conv_balance(l->q[0], l->n[0] / 2);
    } else if (l->n[1] > 1) {
      l->n[1] = plaitk_conv_balance(l->q[1], l->n[1] / 2);
    } else if (l->n[2] > 4 * lanes && mode != CONV_FLAT) {
      l->n[2] = round_up(plaitk_conv_balance(l->q[2], l->n[2] / 2), lanes);
    } else {
      break;
    }
    cost = measure(l, rows, lanes, zero_tail);
  }
  return cost;
}

void plaitk_conv_lattice_cut(plaitk_conv_lattice *l, int64_t channels, int64_t images, int64_t rows, int lanes,
                             int64_t positions, int64_t copy, int zero_tail) {
  l->channels = channels;
  l->images = images;
  l->k = channels * l->nt[0] * l->nt[1] * l->nt[2];
  plaitk_conv_lattice best = *l;
  double cost = split_blocks(&best, CONV_ROWS, rows, lanes, positions, copy, zero_tail);
  for (int mode = zero_tail ? CONV_PACKED : CONV_FLAT; mode <= CONV_PACKED; mode++) {
    plaitk_conv_lattice t = *l;
    double c = split_blocks(&t, mode, rows, lanes, positions, copy, zero_tail);
    if (mode == CONV_FLAT && t.n[2] < t.q[2]) continue;
    if (c < cost) {
      cost = c;
      best = t;
    }
  }
  *l = best;
}

int64_t plaitk_conv_lattice_blocks(const plaitk_conv_lattice *l) {
  return l->blocks_b * l->blocks[0] * l->blocks[1] * l->blocks[2];
}

void plaitk_conv_lattice_koff(const plaitk_conv_lattice *l, int64_t *koff) {
  int64_t slot[3], a[3], j[3], k = 0;
  for (int64_t c = 0; c < l->channels; c++) {
    for (j[0] = 0; j[0] < l->nt[0]; j[0]++) {
      for (j[1] = 0; j[1] < l->nt[1]; j[1]++) {
        for (j[2] = 0; j[2] < l->nt[2]; j[2]++, k++) {
          if (l->mode == CONV_PACKED) {
            koff[k] = k * l->plane;
            continue;
          }
          for (int d = 0; d < 3; d++) {
            slot[d] = j[d] % l->res[d];
            a[d] = floor_div(l->off0[d] + j[d] * l->off_step[d], l->in_step[d]) - l->amin[d];
          }
          koff[k] = c * l->channel + ((slot[0] * l->res[1] + slot[1]) * l->res[2] + slot[2]) * l->plane +
                    (a[0] * (l->n[1] + l->span[1]) + a[1]) * l->pitch + a[2];
        }
      }
    }
  }
}

plaitk_conv_block plaitk_conv_lattice_block(const plaitk_conv_lattice *l, int64_t index, int lanes) {
  plaitk_conv_block b;
  for (int d = 2; d >= 0; d--) {
    b.q0[d] = index % l->blocks[d] * l->n[d];
    b.n[d] = min(l->n[d], l->q[d] - b.q0[d]);
    index /= l->blocks[d];
  }
  b.b0 = index * l->nb;
  b.nb = min(l->nb, l->images - b.b0);
  switch (l->mode) {
    case CONV_ROWS:
      b.pitch[2] = round_up(b.n[2], lanes);
      b.pitch[1] = b.n[1] * b.pitch[2];
      break;
    case CONV_FLAT:
      b.pitch[2] = l->pitch;
      b.pitch[1] = round_up((b.n[1] - 1) * l->pitch + b.n[2], lanes);
      break;
    default:
      b.pitch[2] = b.n[2];
      b.pitch[1] = b.n[1] * b.n[2];
  }
  b.pitch[0] = b.n[0] * b.pitch[1];
  b.vectors = ceil_div(b.nb * b.pitch[0], lanes);
  return b;
}

void plaitk_conv_lattice_base(const plaitk_conv_lattice *l, const plaitk_conv_block *b, int lanes, int64_t *base) {
  if (l->mode == CONV_PACKED) {
    for (int64_t v = 0; v < b->vectors; v++) base[v] = v * lanes;
    return;
  }
  int64_t runs = l->mode == CONV_FLAT ? 1 : b->n[1];
  int64_t length = l->mode == CONV_FLAT ? b->pitch[1] : b->pitch[2];
  for (int64_t i = 0; i < b->nb; i++) {
    for (int64_t z = 0; z < b->n[0]; z++) {
      for (int64_t y = 0; y < runs; y++) {
        int64_t at = i * l->image + (z * (l->n[1] + l->span[1]) + y) * l->pitch;
        for (int64_t x = 0; x < length; x += lanes) *base++ = at + x;
      }
    }
  }
}

// Merges rows that are adjacent in both the plane and the copy into one long row.
static void merge_rows(plaitk_conv_box *b) {
  if (b->start[2] != 0 || b->step[2] != 1 || b->n[2] != b->size[2] || b->width != b->n[2] || b->pitch[1] != b->n[2] ||
      b->step[1] != 1 || b->start[1] < 0 || b->start[1] + b->n[1] > b->size[1]) {
    return;
  }
  b->start[2] = b->start[1] * b->size[2];
  b->n[2] = b->width = b->n[1] * b->n[2];
  b->size[2] *= b->size[1];
  b->start[1] = 0;
  b->n[1] = b->size[1] = 1;
}

void plaitk_conv_lattice_fill(const plaitk_conv_lattice *l, const plaitk_conv_block *b, const plaitk_conv_io *io,
                              const void *src, int64_t channel, int64_t count, int64_t total, int lanes, void *dst) {
  int64_t src_plane = l->size[0] * l->size[1] * l->size[2] * io->size;
  int packed = l->mode == CONV_PACKED;
  const int64_t *parts = packed ? l->nt : l->res;
  plaitk_conv_box box;
  for (int d = 0; d < 3; d++) {
    box.size[d] = l->size[d];
    box.step[d] = l->in_step[d];
    box.n[d] = packed ? b->n[d] : b->n[d] + l->span[d];
  }
  if (packed) {
    box.pitch[0] = b->pitch[1];
    box.pitch[1] = box.width = b->pitch[2];
  } else {
    box.pitch[0] = (l->n[1] + l->span[1]) * l->pitch;
    box.pitch[1] = box.width = l->pitch;
  }
  int64_t p[3], at = 0;
  for (p[0] = 0; p[0] < parts[0]; p[0]++) {
    for (p[1] = 0; p[1] < parts[1]; p[1]++) {
      for (p[2] = 0; p[2] < parts[2]; p[2]++, at += l->plane) {
        for (int d = 0; d < 3; d++) {
          int64_t offset = l->off0[d] + p[d] * l->off_step[d];
          if (!packed) offset -= (floor_div(offset, l->in_step[d]) - l->amin[d]) * l->in_step[d];
          box.start[d] = b->q0[d] * l->in_step[d] + offset;
        }
        plaitk_conv_box whole = box;
        merge_rows(&whole);
        for (int64_t c = 0; c < count; c++) {
          for (int64_t i = 0; i < b->nb; i++) {
            const char *s = (const char *)src + ((b->b0 + i) * total + channel + c) * src_plane;
            int64_t to = at + c * l->channel + i * (packed ? b->pitch[0] : l->image);
            io->fill((char *)dst + to * io->compute_size, s, &whole);
          }
        }
      }
    }
  }
  if (!packed) return;
  // The lanes past the last position read zeros.
  int64_t end = b->nb * b->pitch[0], tail = b->vectors * lanes - end;
  for (int64_t t = 0; t < count * parts[0] * parts[1] * parts[2]; t++) {
    memset((char *)dst + (t * l->plane + end) * io->compute_size, 0, (size_t)(tail * io->compute_size));
  }
}
