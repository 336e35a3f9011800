// Runs the inner loops over operands of any layout and dtype. A loop accesses an operand's memory directly if the operand has
// the loop's type and contiguous rows. Other operands are converted and rearranged through blocks of scratch memory.
#include "plan.h"

#include "../../../include/plait_stream.h"

#define MAX_OPERANDS PLAITK_ELEMENTWISE_MAX_OPERANDS

static bool is_contiguous(const lane *l, int64_t rows, int64_t cols) { return l->col == 1 && (rows == 1 || l->row == cols); }

// Copies elements of a block between the operand's memory, with its strides, and contiguous memory.
static void gather(const lane *l, void *block, const char *src, int64_t rows, int64_t cols) {
  const int64_t size = l->size;
  plaitk_plane p = {{cols, rows}, {size, cols * size}, {l->col * size, l->row * size}, false};
  plaitk_copying_plane(size, block, src, &p);
}

static void scatter(const lane *l, char *dst, const void *block, int64_t rows, int64_t cols) {
  const int64_t size = l->size;
  plaitk_plane p = {{cols, rows}, {l->col * size, l->row * size}, {size, cols * size}, l->streamed};
  plaitk_copying_plane(size, dst, block, &p);
}

#define PARTS(size, T)                                                                                     \
  PLAIT_CLONES static void split_##size(T *restrict re, T *restrict im, const T *restrict from, int64_t n) { \
    _Pragma("omp simd") for (int64_t i = 0; i < n; i++) re[i] = from[2 * i], im[i] = from[2 * i + 1];      \
  }                                                                                                        \
  PLAIT_CLONES static void join_##size(T *restrict to, const T *restrict re, const T *restrict im, int64_t n) { \
    _Pragma("omp simd") for (int64_t i = 0; i < n; i++) to[2 * i] = re[i], to[2 * i + 1] = im[i];          \
  }
PARTS(4, uint32_t)
PARTS(8, uint64_t)

// Copies both parts of the complex numbers of a block between the operands' memory and contiguous memory.
static void load_pair(const lane *l, char *re, char *im, const char *src, int64_t rows, int64_t cols) {
  if (l->row == 2 * cols) cols *= rows, rows = 1;
  for (int64_t r = 0; r < rows; r++, src += l->row * l->size, re += cols * l->size, im += cols * l->size) {
    if (l->size == 4) split_4((void *)re, (void *)im, (const void *)src, cols);
    else split_8((void *)re, (void *)im, (const void *)src, cols);
  }
}

static void store_pair(const lane *l, char *dst, const char *re, const char *im, int64_t rows, int64_t cols) {
  if (l->row == 2 * cols) cols *= rows, rows = 1;
  for (int64_t r = 0; r < rows; r++, dst += l->row * l->size, re += cols * l->size, im += cols * l->size) {
    if (l->size == 4) join_4((void *)dst, (const void *)re, (const void *)im, cols);
    else join_8((void *)dst, (const void *)re, (const void *)im, cols);
  }
}

static void fill_scalar(const lane *l, void *scratch, int64_t n) {
  plaitk_element element;
  plaitk_elementwise_number(&element, l->type, l->value, l->imaginary);
  plaitk_plane p = {{n, 1}, {l->type_size, 0}, {0, 0}, false};
  plaitk_copying_plane(l->type_size, scratch, element.bytes, &p);
}

// Loads the block at src into scratch, converting it if necessary. raw is a buffer for gathered elements.
static void load(const lane *l, char *scratch, void *raw, const char *src, int64_t rows, int64_t cols) {
  if (l->convert == NULL) {
    gather(l, scratch, src, rows, cols);
  } else if (is_contiguous(l, rows, cols)) {
    l->convert(scratch, src, rows * cols);
  } else if (l->col == 1 && cols >= SHORT_ROW) {
    for (int64_t r = 0; r < rows; r++) l->convert(scratch + r * cols * l->type_size, src + r * l->row * l->size, cols);
  } else {
    gather(l, raw, src, rows, cols);
    l->convert(scratch, raw, rows * cols);
  }
}

// Stores a block from scratch to dst, converting it if necessary. raw is a buffer for converted elements.
static void store(const lane *l, char *dst, void *raw, const char *scratch, int64_t rows, int64_t cols) {
  if (l->convert == NULL) {
    scatter(l, dst, scratch, rows, cols);
  } else if (is_contiguous(l, rows, cols)) {
    l->convert(dst, scratch, rows * cols);
  } else if (l->col == 1 && cols >= SHORT_ROW) {
    for (int64_t r = 0; r < rows; r++) l->convert(dst + r * l->row * l->size, scratch + r * cols * l->type_size, cols);
  } else {
    l->convert(raw, scratch, rows * cols);
    scatter(l, dst, raw, rows, cols);
  }
}

static int64_t run_loop(const plan *p, void *const *ptr, int64_t n) {
  if (p->joined) return plaitk_elementwise_run_pairs(p->kernel, ptr, p->attr, n);
  return p->loop(ptr, ptr + p->nin, p->attr, n);
}

// Runs a block part by part, so that one part of the outputs is stored past the caches while the next is computed. The
// operands are at ptr, and their rows are step bytes apart.
static int64_t run_parts(const plan *p, void *const *ptr, const int64_t *step, char *const *memory, int64_t rows, int64_t cols) {
  if (!p->by_row) {
    cols *= rows;
    rows = 1;
  }
  int64_t status = 0, w = min64(cols, p->part), h = w < cols ? 1 : min64(rows, p->part / cols);
  for (int64_t r = 0; r < rows; r += h) {
    for (int64_t c = 0; c < cols; c += w) {
      int64_t down = min64(h, rows - r), across = min64(w, cols - c);
      for (int64_t i = 0; i < down; i++) {
        void *at[MAX_OPERANDS];
        for (int k = 0; k < p->n; k++) {
          int64_t row = k < p->nin ? (r + i) * step[k] : i * cols * p->lane[k].type_size;
          at[k] = (char *)ptr[k] + row + (k < p->nin && !p->lane[k].single ? c * p->lane[k].type_size : 0);
        }
        status |= run_loop(p, at, across);
      }
      for (int k = p->nin; k < p->n; k++) {
        int64_t size = p->lane[k].size;
        plait_stream(memory[k] + (r * cols + c) * size, ptr[k], down * across * size);
      }
    }
  }
  return status;
}

// What a lane's scratch holds. Broadcast operands need the same block many times, and then it is not loaded again.
typedef struct {
  const char *src;
  int64_t rows, cols;
} content;

static int64_t run_block(const plan *p, const cursor *c, char (*scratch)[SCRATCH], char *raw, content *held) {
  int64_t rows = min64(p->rows, p->shape[p->ndim - 2] - c->row), cols = min64(p->cols, p->shape[p->ndim - 1] - c->col);
  void *ptr[MAX_OPERANDS];
  char *memory[MAX_OPERANDS];
  int64_t step[MAX_OPERANDS];
  for (int k = 0; k < p->n; k++) {
    const lane *l = &p->lane[k];
    memory[k] = c->data[k] + (l->scalar ? 0 : (c->row * l->row + c->col * l->col) * l->size);
    ptr[k] = l->packed ? scratch[k] : memory[k];
    step[k] = l->packed ? cols * l->type_size : l->row * l->size;
    if (k >= p->nin || !l->packed || l->scalar) continue;
    if (held[k].src == memory[k] && held[k].rows == rows && held[k].cols == cols) continue;
    if (l->paired) {
      load_pair(l, scratch[k], scratch[k + 1], memory[k], rows, cols);
      held[k + 1] = (content){c->data[k + 1] + (memory[k] - c->data[k]), rows, cols};
    } else {
      load(l, scratch[k], raw, memory[k], rows, cols);
    }
    held[k] = (content){memory[k], rows, cols};
  }
  bool parts = p->streamed;
  for (int k = p->nin; k < p->n; k++) parts &= p->lane[k].streamed && is_contiguous(&p->lane[k], rows, cols);
  if (parts) return run_parts(p, ptr, step, memory, rows, cols);
  int64_t status = 0;
  if (p->by_row) {
    for (int64_t r = 0; r < rows; r++) {
      status |= run_loop(p, ptr, cols);
      for (int k = 0; k < p->n; k++) ptr[k] = (char *)ptr[k] + step[k];
    }
  } else {
    status = run_loop(p, ptr, rows * cols);
  }
  for (int k = p->nin; k < p->n; k++) {
    const lane *l = &p->lane[k];
    if (l->paired) {
      store_pair(l, memory[k], scratch[k], scratch[k + 1], rows, cols);
      k++;
    } else if (l->packed) {
      store(l, memory[k], raw, scratch[k], rows, cols);
    }
  }
  return status;
}

static void run_chunk(void *arg, int64_t chunk) {
  plan *p = arg;
  _Alignas(64) char scratch[MAX_OPERANDS][SCRATCH];
  _Alignas(64) char raw[SCRATCH];
  content held[MAX_OPERANDS];
  for (int k = 0; k < p->n; k++) {
    held[k].src = NULL;
    if (p->lane[k].scalar && !p->lane[k].single) fill_scalar(&p->lane[k], scratch[k], min64(p->rows * p->cols, SCRATCH / p->lane[k].type_size));
  }
  int64_t block = chunk * p->blocks_per_chunk, end = min64(p->blocks, block + p->blocks_per_chunk);
  int64_t status = 0;
  cursor c;
  plaitk_elementwise_seek(p, &c, block);
  for (; block < end; block++, plaitk_elementwise_advance(p, &c)) status |= run_block(p, &c, scratch, raw, held);
  if (p->streamed) plait_stream_end();
  if (status != 0) __atomic_fetch_or(&p->status, status, __ATOMIC_RELAXED);
}

// Reports whether all inputs that the kernel has a loop for numbers for are that.
static bool has_scalars(const plaitk_elementwise_call *call) {
  const plaitk_elementwise_kernel *k = call->kernel;
  for (int i = 0; i < k->nin; i++) {
    if ((k->scalar >> i & 1) && call->operand[i].data != NULL) return false;
  }
  return k->scalar != 0;
}

// Reports whether a loop can run over all operands in one call, and that is little work.
static bool is_trivial(const plaitk_elementwise_call *call, int n, bool scalars, int64_t *count) {
  for (int k = 0; k < n; k++) {
    const plaitk_elementwise_operand *o = &call->operand[k];
    if (scalars && (call->kernel->scalar >> k & 1)) continue;
    if (o->dtype != call->kernel->type[k] || o->data == NULL) return false;
    int64_t run = 1;
    for (int64_t d = call->ndim - 1; d >= 0; d--) {
      if (o->stride[d] != run && call->shape[d] != 1) return false;
      run *= call->shape[d];
    }
    *count = run;
  }
  return *count <= CHUNK;
}

int64_t plaitk_elementwise_run(plait_pool *pool, const plaitk_elementwise_call *call) {
  plaitk_elementwise_call joined;
  plaitk_elementwise_kernel second;
  bool joins = plaitk_elementwise_join(call, &joined, &second);
  if (joins) call = &joined;
  const plaitk_elementwise_kernel *kernel = call->kernel;
  int n = kernel->nin + kernel->nout;
  int64_t count = 0;
  bool scalars = has_scalars(call);
  if (is_trivial(call, n, scalars, &count)) {
    void *ptr[MAX_OPERANDS];
    plaitk_element number[MAX_OPERANDS];
    for (int k = 0; k < n; k++) {
      const plaitk_elementwise_operand *o = &call->operand[k];
      ptr[k] = o->data;
      if (ptr[k] != NULL) continue;
      plaitk_elementwise_number(&number[k], kernel->type[k], o->value, o->imaginary);
      ptr[k] = number[k].bytes;
    }
    if (joins) return plaitk_elementwise_run_pairs(kernel, ptr, call->attr, count);
    return (scalars ? kernel->scalars : kernel->loop)(ptr, ptr + kernel->nin, call->attr, count);
  }
  plan p;
  if (!plaitk_elementwise_plan(&p, call)) return 0;
  p.joined = joins;
  int64_t chunks = (p.blocks + p.blocks_per_chunk - 1) / p.blocks_per_chunk;
  if (chunks == 1) {
    run_chunk(&p, 0);
  } else {
    plait_parallel_parts(pool, chunks, run_chunk, &p);
  }
  return p.status;
}
