// Unique elements, from entries of type E, which is packed or wide.
#define PASTE_(a, b) a##b
#define PASTE(a, b) PASTE_(a, b)
#define F(name) PASTE(PASTE(name, _), E)

static void F(unique)(plait_pool *pool, const struct plaitk_unique *u) {
  char *at = u->scratch;
  E *a = plait_carve(&at, u->n * (int64_t)sizeof(E)), *tmp = plait_carve(&at, u->n * (int64_t)sizeof(E));
  uint32_t *counters = plait_carve(&at, order_counters(u->n) * (int64_t)sizeof(uint32_t));
  PASTE(plaitk_sorting_load_, E)(u->dtype, u->in, 1, 0, -1, u->n, false, a);
  PASTE(plaitk_sorting_sort_, E)(pool, a, tmp, u->n, counters);
  int64_t results = 0;
  for (int64_t i = 0; i < u->n; i++) {
    uint64_t key = PASTE(E, _key)(a[i]), index = PASTE(E, _index)(a[i]);
    bool nan = plait_is_float(u->dtype) && key == key_nan(u->dtype);
    if (i == 0 || nan || key != PASTE(E, _key)(a[i - 1])) {
      take(u, index, results);
      if (u->counts != NULL) u->counts[results] = 0;
      results++;
    }
    if (u->counts != NULL) u->counts[results - 1]++;
    if (u->inverse != NULL) u->inverse[index] = results - 1;
  }
  *u->total = results;
}

#undef F
#undef PASTE
#undef PASTE_
#undef E
