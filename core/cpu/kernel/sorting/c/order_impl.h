// The algorithms of order.c for entries of type E, which is packed or wide.
#define PASTE_(a, b) a##b
#define PASTE(a, b) PASTE_(a, b)
#define KEY PASTE(E, _key)
#define F(name) PASTE(PASTE(name, _), E)

static inline bool F(less)(E a, E b) {
  return KEY(a) != KEY(b) ? KEY(a) < KEY(b) : PASTE(E, _index)(a) < PASTE(E, _index)(b);
}

static void F(insertion)(E *a, int64_t n) {
  for (int64_t i = 1; i < n; i++) {
    E e = a[i];
    int64_t j = i;
    for (; j > 0 && F(less)(e, a[j - 1]); j--) a[j] = a[j - 1];
    a[j] = e;
  }
}

// merge_sort sorts runs of RUN entries by insertion, then merges them pairwise without branches on keys.
static void F(merge_sort)(E *a, E *tmp, int64_t n) {
  for (int64_t i = 0; i < n; i += RUN) F(insertion)(a + i, n - i < RUN ? n - i : RUN);
  E *from = a, *to = tmp;
  for (int64_t run = RUN; run < n; run *= 2) {
    for (int64_t lo = 0; lo < n; lo += 2 * run) {
      int64_t mid = lo + run < n ? lo + run : n, hi = mid + run < n ? mid + run : n;
      int64_t l = lo, r = mid, o = lo;
      while (l < mid && r < hi) {
        bool right = F(less)(from[r], from[l]);
        to[o++] = right ? from[r] : from[l];
        r += right;
        l += !right;
      }
      memcpy(to + o, from + l, (size_t)(mid - l) * sizeof(E));
      memcpy(to + o + (mid - l), from + r, (size_t)(hi - r) * sizeof(E));
    }
    E *swap = from;
    from = to;
    to = swap;
  }
  if (from != a) memcpy(a, from, (size_t)n * sizeof(E));
}

// varying returns the bits in which any key differs from the first one.
static uint64_t F(varying)(const E *a, int64_t n) {
  uint64_t bits = 0, first = KEY(a[0]);
  for (int64_t i = 1; i < n; i++) bits |= KEY(a[i]) ^ first;
  return bits;
}

struct F(pass) {
  const E *from;
  E *to;
  int64_t n;
  int shift;
  uint32_t mask, *counters; // counters of piece p start at p * ORDER_DIGITS
};

static void F(count_piece)(void *arg, int64_t piece) {
  const struct F(pass) *p = arg;
  uint32_t *count = p->counters + piece * ORDER_DIGITS;
  memset(count, 0, ((size_t)p->mask + 1) * sizeof count[0]);
  int64_t lo = piece * ORDER_PIECE, hi = lo + ORDER_PIECE < p->n ? lo + ORDER_PIECE : p->n;
  for (int64_t i = lo; i < hi; i++) count[KEY(p->from[i]) >> p->shift & p->mask]++;
}

static void F(scatter_piece)(void *arg, int64_t piece) {
  const struct F(pass) *p = arg;
  uint32_t *next = p->counters + piece * ORDER_DIGITS;
  int64_t lo = piece * ORDER_PIECE, hi = lo + ORDER_PIECE < p->n ? lo + ORDER_PIECE : p->n;
  for (int64_t i = lo; i < hi; i++) p->to[next[KEY(p->from[i]) >> p->shift & p->mask]++] = p->from[i];
}

// radix_sort distributes the entries by one digit of the key after another, from the lowest digit. It skips digits that
// all keys share.
static void F(radix_sort)(plait_pool *pool, E *a, E *tmp, int64_t n, uint32_t *counters) {
  uint64_t bits = F(varying)(a, n);
  int width = n < 4096 ? 8 : 11;
  int64_t pieces = (n + ORDER_PIECE - 1) / ORDER_PIECE;
  struct F(pass) p = {.from = a, .to = tmp, .n = n, .counters = counters};
  for (int shift = 0; shift < 64 && bits >> shift != 0; shift += width) {
    // A digit starts at the lowest bit in which keys differ.
    shift += __builtin_ctzll(bits >> shift);
    p.shift = shift;
    p.mask = (1u << width) - 1;
    plait_parallel(pool, pieces, F(count_piece), &p);
    uint32_t at = 0;
    for (uint32_t d = 0; d <= p.mask; d++) {
      for (int64_t piece = 0; piece < pieces; piece++) {
        uint32_t *c = counters + piece * ORDER_DIGITS + d, count = *c;
        *c = at;
        at += count;
      }
    }
    plait_parallel(pool, pieces, F(scatter_piece), &p);
    E *swap = (E *)p.from;
    p.from = p.to;
    p.to = swap;
  }
  if (p.from != a) memcpy(a, p.from, (size_t)n * sizeof(E));
}

void PASTE(plaitk_sorting_sort_, E)(plait_pool *pool, E *a, E *tmp, int64_t n, uint32_t *counters) {
  if (n <= RUN) {
    F(insertion)(a, n);
  } else if (n <= SHORT) {
    F(merge_sort)(a, tmp, n);
  } else {
    F(radix_sort)(pool, a, tmp, n, counters);
  }
}

// select is a radix select. It looks at the highest digit in which the candidates differ. Candidates with a lower digit
// than the k-th entry's are selected, those with a higher one are dropped, and the others remain candidates. Entries
// with equal keys keep their order.
void PASTE(plaitk_sorting_select_, E)(E *a, E *tmp, int64_t n, int64_t k, uint32_t *counters) {
  enum { WIDTH = 8 };
  int64_t lo = 0, hi = n; // a[0..lo-1] are selected, a[lo..hi-1] are candidates
  while (lo < k && k < hi) {
    uint64_t bits = F(varying)(a + lo, hi - lo);
    if (bits == 0) return;
    int top = 63 - __builtin_clzll(bits), shift = top >= WIDTH ? top - WIDTH + 1 : 0;
    memset(counters, 0, (1 << WIDTH) * sizeof counters[0]);
    for (int64_t i = lo; i < hi; i++) counters[KEY(a[i]) >> shift & ((1 << WIDTH) - 1)]++;
    uint32_t digit = 0;
    int64_t below = 0; // number of candidates with a lower digit
    while (lo + below + counters[digit] < k) below += counters[digit++];
    E *in = a + lo, *same = tmp, *out = tmp + counters[digit];
    for (int64_t i = lo; i < hi; i++) {
      uint32_t d = KEY(a[i]) >> shift & ((1 << WIDTH) - 1);
      if (d < digit) {
        *in++ = a[i];
      } else if (d == digit) {
        *same++ = a[i];
      } else {
        *out++ = a[i];
      }
    }
    memcpy(in, tmp, (size_t)(hi - lo - below) * sizeof(E));
    lo += below;
    hi = lo + counters[digit];
  }
}

#undef F
#undef KEY
#undef PASTE
#undef PASTE_
#undef E
