// Patches of images are a matrix: its rows are taps and channels, in this order, and its columns are positions of all images. Each tap has
// of_room.by rows, a multiple of TAP_RUN; with PADDED, those behind the last channel are zero. Columns that are next to each other are next to each other in
// memory, too, but in general not aligned, so that a thread reads them one by one. With PAIRED they are aligned to two numbers.

constexpr int THREADS = 256, WARPS = THREADS / 32;
constexpr int RUN = 8; // rows that a thread reads at a time

// The arguments of a program.
struct parameters { u32 words[128]; };
struct buffer { void *at; u64 bytes; };

// A divisor divides numbers below 2^31 by a product and a shift.
struct divisor { u32 by, factor, shift; };

INLINE u32 quotient(u32 n, const divisor &d) { return (__umulhi(n, d.factor) + n) >> d.shift; }

struct problem {
  const u16 *x;      // images
  const u16 *a;      // weights, in the order of patches; or the gradient of the results
  void *y;           // results; or sums of parts of the gradient of the weights
  u32 rows, columns; // of the result; columns are positions, or taps and channels
  u32 images, groups, plane, row_tiles, column_tiles;
  u32 x_image;       // elements of all channels of an image
  u32 y_image;       // of all channels of a result
  u32 y_plane;       // of a channel of a result
  u32 chunk;         // positions of a part, in the gradient of the weights
  u32 channels, depth; // of an image, and the numbers of a patch with the padding
  u32 taps;
  divisor of_image, of_sheet, of_line;   // split positions into images, sheets and lines
  divisor of_room, of_slice, of_tap_row; // split rows of patches into taps, and taps into slices and rows
  int from[3], shift[3], stride[3], step[3];
  u32 size[3], first[3], apart[3]; // with SPREAD: sizes of a channel of a result, and where the positions are in it
};

// A column is a position: the first element that it reads of an image, before taps and channels are added.
struct column {
  u32 image;
  int at[3];
  bool in;
};

INLINE column column_of(const problem &p, u32 position, u32 end) {
  column c;
  c.in = position < end;
  const u32 n = quotient(position, p.of_image), place = position - n * p.of_image.by;
  const u32 sheet = quotient(place, p.of_sheet), rest = place - sheet * p.of_sheet.by, line = quotient(rest, p.of_line);
  c.image = n * p.x_image;
  c.at[0] = (int)sheet * p.stride[0] + p.shift[0];
  c.at[1] = (int)line * p.stride[1] + p.shift[1];
  c.at[2] = (int)(rest - line * p.of_line.by) * p.stride[2] + p.shift[2];
  return c;
}

// A tap is the distance of a tap from the first, if there is such a tap.
struct tap { int at[3]; bool in; };

INLINE tap tap_of(const problem &p, u32 number) {
  const u32 slice = quotient(number, p.of_slice), rest = number - slice * p.of_slice.by, row = quotient(rest, p.of_tap_row);
  tap t;
  t.at[0] = (int)slice * p.step[0];
  t.at[1] = (int)row * p.step[1];
  t.at[2] = (int)(rest - row * p.of_tap_row.by) * p.step[2];
  t.in = number < p.taps;
  return t;
}

// A source is what a column reads of a tap: the element of the first channel, if it is in the image.
struct source { u32 at; bool in; };

INLINE source source_of(const problem &p, const column &c, const tap &t) {
  const int z = c.at[0] + t.at[0], y = c.at[1] + t.at[1], x = c.at[2] + t.at[2];
  source s;
  s.in = c.in && t.in && (u32)z < (u32)p.from[0] && (u32)y < (u32)p.from[1] && (u32)x < (u32)p.from[2];
  s.at = c.image + (u32)((z * p.from[1] + y) * p.from[2] + x);
  return s;
}

// place_of returns where a position of an image is in a channel of its results: with SPREAD, positions are apart.
INLINE u32 place_of(const problem &p, u32 place) {
  if (!SPREAD) return place;
  const u32 sheet = quotient(place, p.of_sheet), rest = place - sheet * p.of_sheet.by, line = quotient(rest, p.of_line);
  const u32 z = sheet * p.apart[0] + p.first[0], y = line * p.apart[1] + p.first[1], x = (rest - line * p.of_line.by) * p.apart[2] + p.first[2];
  return (z * p.size[1] + y) * p.size[2] + x;
}

// gather reads two columns of RUN rows, the first of which is a multiple of RUN.
INLINE void gather(u32 (&to)[RUN], const problem &p, const u16 *x, const column &left, const column &right, u32 row) {
  source l, r;
  u32 channel = 0;
#pragma unroll
  for (int i = 0; i < RUN; i++) {
    if (i % TAP_RUN == 0) {
      const u32 number = quotient(row + i, p.of_room);
      const tap t = tap_of(p, number);
      channel = row + i - number * p.of_room.by;
      l = source_of(p, left, t);
      r = source_of(p, right, t);
    }
    const u32 c = channel + i % TAP_RUN, at = c * p.plane;
    const bool there = !PADDED || c < p.channels;
    if constexpr (PAIRED) {
      to[i] = l.in && there ? __ldg((const u32 *)(x + l.at + at)) : 0;
      continue;
    }
    u32 low = 0, high = 0;
    if (l.in && there) low = __ldg(x + l.at + at);
    if (r.in && there) high = __ldg(x + r.at + at);
    to[i] = low | high << 16;
  }
}

// put stores what gather has read in a tile in shared memory.
template <int COUNT> INLINE void put(char *to, int pitch, const u32 (&v)[COUNT]) {
#pragma unroll
  for (int i = 0; i < COUNT; i++) *(u32 *)(to + i * pitch) = v[i];
}

INLINE char *shared_memory() {
  extern __shared__ uint4 tiles[];
  return (char *)tiles;
}

// multiply adds the product of a warp's rows of a and columns of b, both with DEPTH numbers each, to d: TALL fragments of 16 rows and WIDE
// of 8 columns. Rows of a follow each other by A_PITCH bytes. So do columns of b; or, with ROWS_OF_B, its rows do, by B_PITCH.
template <int DEPTH, int TALL, int WIDE, int A_PITCH, int B_PITCH, bool ROWS_OF_B>
INLINE void multiply(float (&d)[TALL][WIDE][4], const char *a, const char *b) {
  const u32 lane = threadIdx.x % 32;
  a += lane % 16 * A_PITCH + lane / 16 * 16;
  if constexpr (ROWS_OF_B)
    b += lane % 16 * B_PITCH + lane / 16 * 16;
  else
    b += (lane / 16 * 8 + lane % 8) * B_PITCH + lane / 8 % 2 * 16;
#pragma unroll
  for (int k = 0; k < DEPTH; k += 16) {
    u32 left[TALL][4];
#pragma unroll
    for (int m = 0; m < TALL; m++) load_matrices<false>(left[m], a + m * 16 * A_PITCH + k * 2);
#pragma unroll
    for (int n = 0; n < WIDE; n += 2) {
      u32 right[4];
      if constexpr (ROWS_OF_B)
        load_matrices<true>(right, b + k * B_PITCH + n * 16);
      else
        load_matrices<false>(right, b + n * 8 * B_PITCH + k * 2);
#pragma unroll
      for (int m = 0; m < TALL; m++) {
        mma(d[m][n], left[m], right[0], right[1]);
        mma(d[m][n + 1], left[m], right[2], right[3]);
      }
    }
  }
}
