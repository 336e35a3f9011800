// A stand-in for cuBLASLt that computes on the host, from what the descriptors say. It refuses what the library would.
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
  int compute, scale;
  int32_t ta, tb, epilogue;
  void *bias;
} desc;

typedef struct {
  int type;
  uint64_t rows, columns;
  int64_t step, next;
  int32_t count;
} layout;

typedef struct {
  uint64_t workspace, numerics;
  uint32_t reduction, align[4];
} preference;

typedef struct {
  uint64_t algo[8];
  size_t workspace;
  int32_t status;
  float waves;
  int32_t reserved[4];
} heuristic;

enum { INVALID = 7, UNSUPPORTED = 15, MAGIC = 42, REFUSED_K = 13, WORKSPACE = 1024 };

#ifndef VERSION
#define VERSION 130100
#endif

size_t cublasLtGetVersion(void) { return VERSION; }
const char *cublasLtGetStatusString(int status) { return status == INVALID ? "invalid value" : "another status"; }
int cublasLtCreate(void **h) { return *h = calloc(1, 8), 0; }
int cublasLtDestroy(void *h) { return free(h), 0; }

int cublasLtMatmulDescCreate(desc **d, int compute, int scale) {
  *d = calloc(1, sizeof **d);
  **d = (desc){.compute = compute, .scale = scale, .epilogue = 1};
  return 0;
}
int cublasLtMatmulDescDestroy(desc *d) { return free(d), 0; }
int cublasLtMatmulDescSetAttribute(desc *d, int attribute, const void *value, size_t size) {
  void *to = attribute == 3 ? (void *)&d->ta : attribute == 4 ? (void *)&d->tb : attribute == 7 ? (void *)&d->epilogue : (void *)&d->bias;
  if (size != (attribute == 8 ? 8 : 4)) return INVALID;
  return memcpy(to, value, size), 0;
}

int cublasLtMatrixLayoutCreate(layout **l, int type, uint64_t rows, uint64_t columns, int64_t step) {
  *l = calloc(1, sizeof **l);
  **l = (layout){.type = type, .rows = rows, .columns = columns, .step = step, .count = 1};
  return 0;
}
int cublasLtMatrixLayoutDestroy(layout *l) { return free(l), 0; }
int cublasLtMatrixLayoutSetAttribute(layout *l, int attribute, const void *value, size_t size) {
  if (size != (attribute == 5 ? 4 : 8)) return INVALID;
  return memcpy(attribute == 5 ? (void *)&l->count : (void *)&l->next, value, size), 0;
}

int cublasLtMatmulPreferenceCreate(preference **p) { return *p = calloc(1, sizeof **p), 0; }
int cublasLtMatmulPreferenceDestroy(preference *p) { return free(p), 0; }
int cublasLtMatmulPreferenceSetAttribute(preference *p, int attribute, const void *value, size_t size) {
  void *to = attribute == 1 ? (void *)&p->workspace : attribute == 12 ? (void *)&p->numerics : attribute == 3 ? (void *)&p->reduction : NULL;
  if (attribute >= 5 && attribute <= 8) to = &p->align[attribute - 5];
  if (!to || size != (attribute == 1 || attribute == 12 ? 8 : 4)) return INVALID;
  return memcpy(to, value, size), 0;
}

int cublasLtMatmulAlgoGetHeuristic(void *h, desc *d, layout *a, layout *b, layout *c, layout *e, preference *p, int most, heuristic *found,
                                   int *count) {
  uint64_t m = d->ta ? a->columns : a->rows, k = d->ta ? a->rows : a->columns, n = d->tb ? b->rows : b->columns;
  if (!h || c != e || most != 1 || m != c->rows || n != c->columns || k != (d->tb ? b->columns : b->rows)) return INVALID;
  if (a->step < (int64_t)a->rows || b->step < (int64_t)b->rows || c->step < (int64_t)c->rows) return INVALID;
  if (p->workspace < WORKSPACE || (p->reduction & 5) || d->compute == 64) return INVALID;
  int plain = d->compute == 68 && a->type == 0;
  if (((p->numerics & 2) == 0) != plain) return INVALID; // tensor cores
  *count = k != REFUSED_K;
  *found = (heuristic){.algo = {MAGIC}, .workspace = WORKSPACE};
  return 0;
}

static double load(const void *from, int type, int64_t i) {
  if (type == 0) return ((const float *)from)[i];
  if (type == 1) return ((const double *)from)[i];
  if (type == 2) return (double)((const _Float16 *)from)[i];
  uint32_t bits = (uint32_t)((const uint16_t *)from)[i] << 16;
  float v;
  return memcpy(&v, &bits, 4), v;
}

static void store(void *to, int type, int64_t i, double v) {
  float f = (float)v;
  uint32_t bits;
  memcpy(&bits, &f, 4);
  if (type == 0) ((float *)to)[i] = f;
  if (type == 1) ((double *)to)[i] = v;
  if (type == 2) ((_Float16 *)to)[i] = (_Float16)v;
  if (type == 14) ((uint16_t *)to)[i] = (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

int cublasLtMatmul(void *h, desc *d, const void *alpha, const void *a, layout *la, const void *b, layout *lb, const void *beta, const void *c,
                   layout *lc, void *e, layout *le, const uint64_t *algo, void *workspace, size_t size, void *stream) {
  if (!h || c != e || lc != le || *algo != MAGIC || size != WORKSPACE || !workspace || stream) return INVALID;
  if (d->scale != (la->type == 1) || (d->compute == 70) != (la->type == 1)) return INVALID;
  uint64_t k = d->ta ? la->rows : la->columns;
  for (int64_t z = 0; z < lc->count; z++) {
    for (uint64_t i = 0; i < lc->rows; i++) {
      for (uint64_t j = 0; j < lc->columns; j++) {
        double sum = 0;
        for (uint64_t q = 0; q < k; q++) {
          sum += load(a, la->type, z * la->next + (int64_t)(d->ta ? i * la->step + q : q * la->step + i)) *
                 load(b, lb->type, z * lb->next + (int64_t)(d->tb ? q * lb->step + j : j * lb->step + q));
        }
        int64_t at = z * lc->next + (int64_t)(j * lc->step + i);
        double old = load(beta, d->scale, 0);
        sum = sum * load(alpha, d->scale, 0) + (old != 0 ? old * load(c, lc->type, at) : 0);
        if (d->epilogue == 4) sum += load(d->bias, lc->type, (int64_t)i);
        store(e, lc->type, at, sum);
      }
    }
  }
  return 0;
}
