//go:build cgo && linux && amd64

#define _GNU_SOURCE
#include "shim.h"

#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

// An invocation of a program with barriers has a stack of its own, and a page below it that faults.
enum { STACK = 128 << 10, GUARD = 4096 };

static char *stacks;
static void *saved[PLAITK_HOST_THREADS]; // stack pointers of invocations that wait
static char ended[PLAITK_HOST_THREADS];
static void *scheduler; // stack pointer of the loop that runs them

static struct {
  const plaitk_host_program *program;
  const void *params;
  const plaitk_host_buffer *buffers;
  plaitk_host_place place;
} job;

// plaitk_host_switch saves the registers that calls keep on the stack, its pointer in *from, and goes on at to.
void plaitk_host_switch(void **from, void *to);
__asm__(".text\n"
        ".hidden plaitk_host_switch\n"
        ".globl plaitk_host_switch\n"
        ".type plaitk_host_switch, @function\n"
        "plaitk_host_switch:\n"
        "  pushq %rbp\n"
        "  pushq %rbx\n"
        "  pushq %r12\n"
        "  pushq %r13\n"
        "  pushq %r14\n"
        "  pushq %r15\n"
        "  movq %rsp, (%rdi)\n"
        "  movq %rsi, %rsp\n"
        "  popq %r15\n"
        "  popq %r14\n"
        "  popq %r13\n"
        "  popq %r12\n"
        "  popq %rbx\n"
        "  popq %rbp\n"
        "  ret\n"
        ".size plaitk_host_switch, . - plaitk_host_switch\n");

static void barrier(void) {
  const uint32_t me = job.place.thread.x;
  plaitk_host_switch(&saved[me], scheduler);
  job.place.thread.x = me;
}

static void begin(void) {
  const uint32_t me = job.place.thread.x;
  job.program->run(job.params, job.buffers);
  ended[me] = 1;
  plaitk_host_switch(&saved[me], scheduler);
}

// prepare makes a stack on which plaitk_host_switch returns to begin.
static void prepare(uint32_t t) {
  void **top = (void **)(stacks + (size_t)(t + 1) * STACK);
  top[-2] = (void *)begin;
  memset(top - 8, 0, 6 * sizeof(void *));
  saved[t] = top - 8;
  ended[t] = 0;
}

static int make_stacks(void) {
  if (stacks != NULL)
    return 1;
  char *made = mmap(NULL, (size_t)PLAITK_HOST_THREADS * STACK, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (made == MAP_FAILED)
    return 0;
  for (size_t t = 0; t < PLAITK_HOST_THREADS; t++)
    if (mprotect(made + t * STACK, GUARD, PROT_NONE) != 0)
      return 0;
  stacks = made;
  return 1;
}

static _Thread_local volatile sig_atomic_t running;
static sigjmp_buf faulted;
static void *volatile fault_at;
static struct sigaction before[NSIG];
static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL};

static void on_fault(int number, siginfo_t *info, void *context) {
  if (running) {
    fault_at = info->si_addr;
    siglongjmp(faulted, 1);
  }
  before[number].sa_sigaction(number, info, context); // of another thread: it is for the language runtime
}

// block runs one workgroup. It returns 0 if some of its invocations have ended while others wait at a barrier.
static int block(uint32_t threads, int barriers, int backward) {
  for (uint16_t *at = job.program->shared; at < job.program->shared_end; at++)
    *at = PLAITK_HOST_STALE;
  if (!barriers) {
    for (uint32_t i = 0; i < threads; i++) {
      job.place.thread.x = backward ? threads - 1 - i : i;
      job.program->run(job.params, job.buffers);
    }
    return 1;
  }
  for (uint32_t t = 0; t < threads; t++)
    prepare(t);
  for (uint32_t left = threads; left > 0;) {
    for (uint32_t i = 0; i < threads; i++) {
      const uint32_t t = backward ? threads - 1 - i : i;
      job.place.thread.x = t;
      plaitk_host_switch(&scheduler, saved[t]);
      left -= ended[t];
    }
    if (left > 0 && left < threads)
      return 0;
  }
  return 1;
}

int plaitk_host_run(const plaitk_host_program *p, const void *params, const plaitk_host_buffer *buffers, uint32_t threads,
                    plaitk_host_size grid, int barriers, int backward, char error[PLAITK_HOST_TEXT]) {
  if (threads > PLAITK_HOST_THREADS || !make_stacks()) {
    snprintf(error, PLAITK_HOST_TEXT, "there are no stacks for workgroups of %u invocations", threads);
    return 0;
  }
  job.program = p;
  job.params = params;
  job.buffers = buffers;
  job.place.grid = grid;
  job.place.barrier = barrier;
  *p->here = &job.place;
  struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_ONSTACK};
  sigfillset(&action.sa_mask);
  for (size_t i = 0; i < sizeof(faults) / sizeof(faults[0]); i++)
    sigaction(faults[i], &action, &before[faults[i]]);
  const uint64_t row = grid.x, plane = row * grid.y, count = plane * grid.z;
  volatile int ok = 1;
  if (sigsetjmp(faulted, 1) == 0) {
    running = 1;
    for (uint64_t i = 0; i < count && ok; i++) {
      const uint64_t n = backward ? count - 1 - i : i;
      job.place.block = (plaitk_host_size){n % row, n % plane / row, n / plane};
      ok = block(threads, barriers, backward);
    }
    if (!ok)
      snprintf(error, PLAITK_HOST_TEXT, "a part of workgroup (%u, %u, %u) does not reach a barrier", job.place.block.x,
               job.place.block.y, job.place.block.z);
  } else {
    ok = 0;
    snprintf(error, PLAITK_HOST_TEXT, "invocation %u of workgroup (%u, %u, %u) has accessed memory at %p, which is in no buffer",
             job.place.thread.x, job.place.block.x, job.place.block.y, job.place.block.z, fault_at);
  }
  running = 0;
  for (size_t i = 0; i < sizeof(faults) / sizeof(faults[0]); i++)
    sigaction(faults[i], &before[faults[i]], NULL);
  return ok;
}
