// Sorts many short lines at once, as columns of a block of entries, by Batcher's merge exchange. No two entries are equal, so the
// order is that of a stable sort.
#include "sorting.h"

enum { PITCH = PLAIT_ABREAST_PITCH };

// EXCHANGE puts the lesser of two entries first.
#define EXCHANGE_packed(x, y)  \
  {                            \
    packed u = x, v = y;       \
    x = v < u ? v : u;         \
    y = v < u ? u : v;         \
  }
#define EXCHANGE_wide(x, y)                                                                      \
  {                                                                                              \
    wide u = x, v = y;                                                                           \
    uint64_t swap = -(uint64_t)((v.key < u.key) | ((v.key == u.key) & (v.index < u.index)));     \
    uint64_t key = (u.key ^ v.key) & swap, index = (u.index ^ v.index) & swap;                   \
    x = (wide){u.key ^ key, u.index ^ index};                                                    \
    y = (wide){v.key ^ key, v.index ^ index};                                                    \
  }

// SORT defines sort_E, which sorts the columns of n rows.
#define SORT(E)                                                                          \
  PLAIT_CLONES static void sort_##E(E *a, int64_t lines, int64_t n) {                    \
    int64_t top = 1;                                                                     \
    while (2 * top < n) top *= 2;                                                        \
    for (int64_t p = top; p > 0; p /= 2) {                                               \
      for (int64_t q = top, r = 0, d = p;; d = q - p, q /= 2, r = p) {                   \
        for (int64_t i = 0; i + d < n; i++) {                                            \
          if ((i & p) != r) continue;                                                    \
          E *x = a + i * PITCH, *y = x + d * PITCH;                                      \
          _Pragma("omp simd") for (int64_t j = 0; j < lines; j++) EXCHANGE_##E(x[j], y[j]) \
        }                                                                                \
        if (q == p) break;                                                               \
      }                                                                                  \
    }                                                                                    \
  }
SORT(packed)
SORT(wide)

// position returns the row of the result that an op other than a sort takes from a sorted column.
#define POSITION(E)                                                                                       \
  static int64_t position_##E(const struct plaitk_sorting *s, const E *column) {                          \
    if (s->op == SORTING_KTH) return s->k - 1;                                                            \
    int64_t known = s->n;                                                                                 \
    if (plait_is_float(s->dtype)) {                                                                       \
      while (known > 0 && E##_key(column[(known - 1) * PITCH]) == key_nan(s->dtype)) known--;             \
    }                                                                                                     \
    if (known < s->n && (s->op == SORTING_MEDIAN || known == 0)) return known;                            \
    return (known - 1) / 2;                                                                               \
  }
POSITION(packed)
POSITION(wide)

// pick sets the rows of `to` to the elements of a block at the given rows.
#define PICK(S, T)                                                                                              \
  static void pick##S(const T *block, const int64_t *index, T *to, int64_t lines, int64_t rows) {               \
    for (int64_t i = 0; i < rows * PITCH; i += PITCH) {                                                         \
      for (int64_t j = 0; j < lines; j++) to[i + j] = block[index[i + j] * PITCH + j];                          \
    }                                                                                                           \
  }
PICK(1, uint8_t)
PICK(2, uint16_t)
PICK(4, uint32_t)
PICK(8, uint64_t)

struct block {
  union {
    packed packed[PLAIT_ABREAST_BLOCK];
    wide wide[PLAIT_ABREAST_BLOCK];
  } entries;
  uint64_t elements[PLAIT_ABREAST_BLOCK], values[PLAIT_ABREAST_BLOCK];
  int64_t index[PLAIT_ABREAST_BLOCK];
};

// CHOOSE sets `index` to the rows of the results of a block. There are `rows` results in a line.
#define CHOOSE(E)                                                                                                       \
  static void choose_##E(const struct plaitk_sorting *s, struct block *b, int64_t lines, int64_t rows) {                \
    E *a = b->entries.E;                                                                                                \
    for (int64_t i = 0; i < s->n; i++) {                                                                                \
      const char *row = (const char *)b->elements + i * PITCH * plait_dtype_size(s->dtype);                             \
      plaitk_sorting_load_##E(s->dtype, row, 1, i, 0, lines, s->descending, a + i * PITCH);                             \
    }                                                                                                                   \
    sort_##E(a, lines, s->n);                                                                                           \
    if (s->op == SORTING_SORT || s->op == SORTING_TOP) {                                                                \
      for (int64_t i = 0; i < rows * PITCH; i += PITCH) {                                                               \
        for (int64_t j = 0; j < lines; j++) b->index[i + j] = (int64_t)E##_index(a[i + j]);                             \
      }                                                                                                                 \
    } else {                                                                                                            \
      for (int64_t j = 0; j < lines; j++) b->index[j] = (int64_t)E##_index(a[position_##E(s, a + j) * PITCH + j]);      \
    }                                                                                                                   \
  }
CHOOSE(packed)
CHOOSE(wide)

void plaitk_sorting_abreast(const struct plaitk_sorting *s, int64_t first, int64_t last, void *scratch) {
  struct block *b = scratch;
  int64_t rows = s->op == SORTING_SORT ? s->n : s->op == SORTING_TOP ? s->k : 1, size = plait_dtype_size(s->dtype);
  struct plait_lines from = {s->n, s->in_stride, s->nk, s->ksize, s->kin};
  struct plait_lines to = {rows, s->out_stride, s->nk, s->ksize, s->kout};
  for (int64_t line = first; line < last; line += PLAIT_ABREAST) {
    int64_t lines = last - line < PLAIT_ABREAST ? last - line : PLAIT_ABREAST;
    plait_abreast_load(b->elements, s->in, &from, line, lines, size);
    if (key_is_wide(s->dtype)) {
      choose_wide(s, b, lines, rows);
    } else {
      choose_packed(s, b, lines, rows);
    }
    plait_abreast_store(b->index, s->indices, &to, line, lines, 8);
    if (s->values == NULL) continue;
#define PICK_ROWS(S, T) pick##S((const T *)b->elements, b->index, (T *)b->values, lines, rows)
    switch (size) {
    case 1: PICK_ROWS(1, uint8_t); break;
    case 2: PICK_ROWS(2, uint16_t); break;
    case 4: PICK_ROWS(4, uint32_t); break;
    default: PICK_ROWS(8, uint64_t);
    }
    plait_abreast_store(b->values, s->values, &to, line, lines, size);
  }
}

int64_t plaitk_sorting_abreast_scratch(void) { return sizeof(struct block); }
