// Sorts or selects from one line of entries of type E, which is packed or wide.
#define PASTE_(a, b) a##b
#define PASTE(a, b) PASTE_(a, b)
#define KEY PASTE(E, _key)
#define INDEX PASTE(E, _index)
#define F(name) PASTE(PASTE(name, _), E)

static inline bool F(before)(E a, E b) { return KEY(a) != KEY(b) ? KEY(a) < KEY(b) : INDEX(a) < INDEX(b); }

// first_few finds the first k <= FEW entries of a line without storing the others. It keeps the best so far sorted.
static void F(first_few)(const struct plaitk_sorting *s, const char *in, E *best) {
  E block[BLOCK];
  int64_t have = 0, size = plait_dtype_size(s->dtype);
  for (int64_t at = 0; at < s->n; at += BLOCK) {
    int64_t n = s->n - at < BLOCK ? s->n - at : BLOCK;
    PASTE(plaitk_sorting_load_, E)(s->dtype, in + at * s->in_stride * size, s->in_stride, at, -1, n, s->descending, block);
    int64_t i = 0;
    for (; i < n && have < s->k; i++) {
      int64_t j = have++;
      for (; j > 0 && F(before)(block[i], best[j - 1]); j--) best[j] = best[j - 1];
      best[j] = block[i];
    }
    for (; i < n; i++) {
      // On equal keys the later entry loses, so there is no need to compare indices.
      if (KEY(block[i]) >= KEY(best[s->k - 1])) continue;
      int64_t j = s->k - 1;
      for (; j > 0 && KEY(block[i]) < KEY(best[j - 1]); j--) best[j] = best[j - 1];
      best[j] = block[i];
    }
  }
}

// first_some moves the first k entries of a line to a[0..k-1], in any order but for equal keys. It drops entries behind the k-th of those
// before them as it reads them.
static void F(first_some)(const struct plaitk_sorting *s, const char *in, E *a, E *tmp, uint32_t *counters) {
  E block[BLOCK];
  int64_t have = 0, size = plait_dtype_size(s->dtype);
  uint64_t last = 0;
  bool bounded = false;
  for (int64_t at = 0; at < s->n; at += BLOCK) {
    int64_t n = s->n - at < BLOCK ? s->n - at : BLOCK;
    PASTE(plaitk_sorting_load_, E)(s->dtype, in + at * s->in_stride * size, s->in_stride, at, -1, n, s->descending, block);
    for (int64_t i = 0; i < n; i++) {
      a[have] = block[i];
      have += !bounded | (KEY(block[i]) < last); // on equal keys the later entry loses
    }
    if (have < 2 * s->k && (at + n < s->n || have <= s->k)) continue;
    PASTE(plaitk_sorting_select_, E)(a, tmp, have, s->k, counters);
    have = s->k, bounded = true, last = 0;
    for (int64_t i = 0; i < have; i++) last = KEY(a[i]) > last ? KEY(a[i]) : last;
  }
}

// kth returns the k-th entry in order, counted from 1.
static E F(kth)(E *a, E *tmp, int64_t n, int64_t k, uint32_t *counters) {
  PASTE(plaitk_sorting_select_, E)(a, tmp, n, k, counters);
  E last = a[0];
  for (int64_t i = 1; i < k; i++) {
    if (F(before)(last, a[i])) last = a[i];
  }
  return last;
}

static uint64_t F(median)(const struct plaitk_sorting *s, E *a, E *tmp, uint32_t *counters) {
  int64_t nans = 0, first = -1;
  if (plait_is_float(s->dtype)) {
    for (int64_t i = 0; i < s->n; i++) {
      if (KEY(a[i]) != key_nan(s->dtype)) continue;
      if (nans++ == 0) first = i;
    }
  }
  if (nans > 0 && (s->op == SORTING_MEDIAN || nans == s->n)) return (uint64_t)first;
  return INDEX(F(kth)(a, tmp, s->n, (s->n - nans - 1) / 2 + 1, counters));
}

static uint64_t F(mode)(const struct plaitk_sorting *s, E *a, E *tmp, uint32_t *counters) {
  PASTE(plaitk_sorting_sort_, E)(NULL, a, tmp, s->n, counters);
  int64_t longest = 0, start = 0;
  uint64_t last = 0;
  for (int64_t i = 1; i <= s->n; i++) {
    if (i < s->n && KEY(a[i]) == KEY(a[start])) continue;
    if (i - start > longest) {
      longest = i - start;
      last = INDEX(a[i - 1]);
    }
    start = i;
  }
  return last;
}

static void F(line)(plait_pool *pool, const struct plaitk_sorting *s, const char *in, int64_t out, char *scratch) {
  int64_t entries = entries_of(s);
  E *a = plait_carve(&scratch, entries * (int64_t)sizeof(E)), *tmp = plait_carve(&scratch, entries * (int64_t)sizeof(E));
  uint32_t *counters = plait_carve(&scratch, order_counters(entries) * (int64_t)sizeof(uint32_t));
  uint64_t one;
  if (s->op == SORTING_TOP && is_few(s)) {
    F(first_few)(s, in, a);
    for (int64_t i = 0; i < s->k; i++) write_result(s, in, INDEX(a[i]), out + i * s->out_stride);
    return;
  }
  bool some = s->op == SORTING_TOP && is_some(s);
  if (some) F(first_some)(s, in, a, tmp, counters);
  else PASTE(plaitk_sorting_load_, E)(s->dtype, in, s->in_stride, 0, -1, s->n, s->descending, a);
  switch (s->op) {
  case SORTING_TOP:
    if (!some) PASTE(plaitk_sorting_select_, E)(a, tmp, s->n, s->k, counters);
    PASTE(plaitk_sorting_sort_, E)(NULL, a, tmp, s->k, counters);
    break;
  case SORTING_SORT:
    PASTE(plaitk_sorting_sort_, E)(pool, a, tmp, s->n, counters);
    break;
  case SORTING_KTH:
    one = INDEX(F(kth)(a, tmp, s->n, s->k, counters));
    write_result(s, in, one, out);
    return;
  case SORTING_MODE:
    one = F(mode)(s, a, tmp, counters);
    write_result(s, in, one, out);
    return;
  default:
    one = F(median)(s, a, tmp, counters);
    write_result(s, in, one, out);
    return;
  }
  int64_t k = s->op == SORTING_TOP ? s->k : s->n;
  for (int64_t i = 0; i < k; i++) write_result(s, in, INDEX(a[i]), out + i * s->out_stride);
}

#undef F
#undef INDEX
#undef KEY
#undef PASTE
#undef PASTE_
#undef E
