// The calls into MPI, for one ABI: mpich.c, openmpi.c and standard.c include this file behind the ABI's own types and
// constants.
#include "common.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef int abi_copy(abi_comm, int, void *, void *, void *, int *);
typedef int abi_delete(abi_comm, int, void *, void *);

#define ABI_FUNCTIONS(F)                                                                                               \
  F(Initialized, (int *))                                                                                              \
  F(Finalized, (int *))                                                                                                \
  F(Init_thread, (int *, char ***, int, int *))                                                                        \
  F(Query_thread, (int *))                                                                                             \
  F(Finalize, (void))                                                                                                  \
  F(Comm_set_errhandler, (abi_comm, abi_errhandler))                                                                   \
  F(Comm_test_inter, (abi_comm, int *))                                                                                \
  F(Comm_dup, (abi_comm, abi_comm *))                                                                                  \
  F(Comm_free, (abi_comm *))                                                                                           \
  F(Comm_rank, (abi_comm, int *))                                                                                      \
  F(Comm_size, (abi_comm, int *))                                                                                      \
  F(Comm_get_attr, (abi_comm, int, void *, int *))                                                                     \
  F(Comm_set_attr, (abi_comm, int, void *))                                                                            \
  F(Comm_delete_attr, (abi_comm, int))                                                                                 \
  F(Comm_create_keyval, (abi_copy *, abi_delete *, int *, void *))                                                     \
  F(Comm_free_keyval, (int *))                                                                                         \
  F(Isend, (const void *, int, abi_datatype, int, int, abi_comm, abi_request *))                                       \
  F(Irecv, (void *, int, abi_datatype, int, int, abi_comm, abi_request *))                                             \
  F(Ibarrier, (abi_comm, abi_request *))                                                                               \
  F(Testsome, (int, abi_request *, int *, int *, abi_status *))                                                        \
  F(Test_cancelled, (const abi_status *, int *))                                                                       \
  F(Get_count, (const abi_status *, abi_datatype, int *))                                                              \
  F(Cancel, (abi_request *))                                                                                           \
  F(Error_class, (int, int *))                                                                                         \
  F(Error_string, (int, char *, int *))

typedef struct {
#define ABI_DECLARE(name, params) int(*name) params;
  ABI_FUNCTIONS(ABI_DECLARE)
#undef ABI_DECLARE
  abi_comm (*from_fortran)(int); // NULL if handles are Fortran's numbers
  abi_comm world, self, null, comm;
  abi_datatype byte;
  abi_errhandler errors_return;
  int keyval;
  int32_t room;          // of the lists that follow
  abi_request *requests; // of the operations under way
  abi_status *statuses;
  int *indices;
} calls;

// Looks up the functions and the handles.
static int load(plaitk_mpi *m) {
  calls *c = calloc(1, sizeof *c);
  if (!c) {
    snprintf(m->error, sizeof m->error, "no memory");
    return 1;
  }
  m->native = c;
#define ABI_LOAD(name, params)                                                                                         \
  c->name = (int(*) params)dlsym(m->library, "MPI_" #name);                                                            \
  if (!c->name) {                                                                                                      \
    snprintf(m->error, sizeof m->error, "it lacks MPI_" #name);                                                        \
    return 1;                                                                                                          \
  }
  ABI_FUNCTIONS(ABI_LOAD)
#undef ABI_LOAD
#ifdef ABI_SYMBOLS
#define ABI_TEXT(symbol) #symbol
#define ABI_HANDLE(field, symbol)                                                                                      \
  c->field = dlsym(m->library, ABI_TEXT(symbol));                                                                      \
  if (!c->field) {                                                                                                     \
    snprintf(m->error, sizeof m->error, "it lacks " ABI_TEXT(symbol));                                                 \
    return 1;                                                                                                          \
  }
#else
#define ABI_HANDLE(field, value) c->field = value;
#endif
  ABI_HANDLE(world, ABI_COMM_WORLD)
  ABI_HANDLE(self, ABI_COMM_SELF)
  ABI_HANDLE(null, ABI_COMM_NULL)
  ABI_HANDLE(byte, ABI_BYTE)
  ABI_HANDLE(errors_return, ABI_ERRORS_RETURN)
  c->from_fortran = (abi_comm(*)(int))dlsym(m->library, "MPI_Comm_f2c");
  if (!c->from_fortran) c->from_fortran = (abi_comm(*)(int))dlsym(m->library, "MPI_Comm_fromint");
  c->keyval = ABI_KEYVAL_INVALID;
  return 0;
}

static void describe(plaitk_mpi *m, int code, char text[PLAITK_MPI_TEXT]) {
  calls *c = m->native;
  char buffer[ABI_ERROR_TEXT + 1] = "";
  int size = 0;
  if (c->Error_string(code, buffer, &size)) size = 0;
  buffer[size > 0 && size < ABI_ERROR_TEXT ? size : 0] = 0;
  snprintf(text, PLAITK_MPI_TEXT, "%s", size ? buffer : "unknown error");
}

static int class_of(calls *c, int code) {
  int class = code;
  if (code) c->Error_class(code, &class);
  return class;
}

// Reports that an MPI function has failed while joining.
static int failed(plaitk_mpi *m, const char *function, int code) {
  char text[PLAITK_MPI_TEXT];
  describe(m, code, text);
  snprintf(m->error, sizeof m->error, "%s failed: %.900s", function, text);
  return 1;
}

static int copy_nothing(abi_comm comm, int keyval, void *extra, void *in, void *out, int *flag) {
  (void)comm, (void)keyval, (void)extra, (void)in, (void)out;
  *flag = 0;
  return 0;
}

// MPI deletes the attributes of the process's own communicator first of all when it is finalised.
static int at_finalize(abi_comm comm, int keyval, void *value, void *extra) {
  (void)comm, (void)keyval, (void)extra;
  plaitk_mpi_finalized(value);
  return 0;
}

// Initialises MPI, or checks that it can be used as it was initialised.
static int initialize(plaitk_mpi *m) {
  calls *c = m->native;
  int done = 0, level = 0, code = c->Finalized(&done);
  if (!code && done) {
    snprintf(m->error, sizeof m->error, "MPI was finalised, and a process can initialise it only once");
    return 1;
  }
  if ((code = c->Initialized(&done))) return failed(m, "MPI_Initialized", code);
  if (done) {
    if ((code = c->Query_thread(&level))) return failed(m, "MPI_Query_thread", code);
    if (level >= ABI_MULTIPLE) return 0;
    snprintf(m->error, sizeof m->error,
             "MPI was initialised by another part of the program for fewer threads than MPI_THREAD_MULTIPLE, which is "
             "needed to use it beside others (mpi4py: mpi4py.rc.thread_level = \"multiple\")");
    return 1;
  }
  plaitk_mpi_signals signals;
  plaitk_mpi_hold_signals(&signals);
  code = c->Init_thread(NULL, NULL, ABI_MULTIPLE, &level);
  plaitk_mpi_restore_signals(&signals);
  if (code) return failed(m, "MPI_Init_thread", code);
  m->ours = 1;
  c->Comm_set_errhandler(c->world, c->errors_return);
  c->Comm_set_errhandler(c->self, c->errors_return);
  if (level >= ABI_SERIALIZED) return 0;
  snprintf(m->error, sizeof m->error, "it was built for one thread, and MPI_THREAD_SERIALIZED is needed");
  return 1;
}

static int join(plaitk_mpi *m, int given, int communicator) {
  calls *c = m->native;
  int done = 0, inter = 0, found = 0, code;
  c->Initialized(&done);
  if (given && !done) {
    snprintf(m->error, sizeof m->error, "a communicator is given, and nobody has initialised MPI in this library");
    return 1;
  }
  if (initialize(m)) return 1;
  abi_comm from = c->world;
  if (given) from = c->from_fortran ? c->from_fortran(communicator) : (abi_comm)(intptr_t)communicator;
  if (from == c->null) {
    snprintf(m->error, sizeof m->error, "%d is not the number of a communicator", communicator);
    return 1;
  }
  if ((code = c->Comm_test_inter(from, &inter))) return failed(m, "MPI_Comm_test_inter", code);
  if (inter) {
    snprintf(m->error, sizeof m->error, "the communicator joins two groups of processes, and one group is wanted");
    return 1;
  }
  if ((code = c->Comm_dup(from, &c->comm))) return failed(m, "MPI_Comm_dup", code);
  c->Comm_set_errhandler(c->comm, c->errors_return);
  c->Comm_rank(c->comm, &m->process);
  c->Comm_size(c->comm, &m->processes);
  int *bound = NULL;
  m->tags = 32767; // what the standard promises
  if (!c->Comm_get_attr(c->comm, ABI_TAG_UB, &bound, &found) && found && bound) m->tags = *bound;
  code = c->Comm_create_keyval(copy_nothing, at_finalize, &c->keyval, NULL);
  if (!code) code = c->Comm_set_attr(c->self, c->keyval, m);
  return code ? failed(m, "MPI_Comm_set_attr", code) : 0;
}

// Makes room for one more operation.
static int room(plaitk_mpi *m) {
  calls *c = m->native;
  if (!plaitk_mpi_room(m)) return 0;
  if (c->room >= m->capacity) return 1;
  size_t n = m->capacity;
  abi_request *requests = realloc(c->requests, n * sizeof *requests);
  if (requests) c->requests = requests;
  abi_status *statuses = realloc(c->statuses, n * sizeof *statuses);
  if (statuses) c->statuses = statuses;
  int *indices = realloc(c->indices, n * sizeof *indices);
  if (indices) c->indices = indices;
  if (!requests || !statuses || !indices) return 0;
  c->room = m->capacity;
  return 1;
}

static int started(plaitk_mpi *m, uint64_t id, int code) {
  if (!code) m->ids[m->pending++] = id;
  return code;
}

static int start(plaitk_mpi *m, uint64_t id, int send, void *data, int bytes, int peer, int tag) {
  calls *c = m->native;
  if (!room(m)) return PLAITK_MPI_MEMORY;
  abi_request *r = &c->requests[m->pending];
  return started(m, id, send ? c->Isend(data, bytes, c->byte, peer, tag, c->comm, r)
                             : c->Irecv(data, bytes, c->byte, peer, tag, c->comm, r));
}

static int barrier(plaitk_mpi *m, uint64_t id) {
  calls *c = m->native;
  if (!room(m)) return PLAITK_MPI_MEMORY;
  return started(m, id, c->Ibarrier(c->comm, &c->requests[m->pending]));
}

static int poll(plaitk_mpi *m) {
  calls *c = m->native;
  if (!m->pending) return 0;
  int n = 0, code = c->Testsome(m->pending, c->requests, &n, c->indices, c->statuses);
  int class = class_of(c, code);
  if (code && class != ABI_ERR_IN_STATUS) return -3 - code;
  if (n <= 0) return 0; // MPI_UNDEFINED is negative
  for (int i = 0; i < n; i++) {
    plaitk_mpi_result *r = &m->results[i];
    const abi_status *s = &c->statuses[i];
    int bytes = 0;
    *r = (plaitk_mpi_result){.id = m->ids[c->indices[i]], .code = code ? s->error : 0};
    r->truncated = class_of(c, r->code) == ABI_ERR_TRUNCATE;
    if (r->code) continue;
    c->Test_cancelled(s, &r->cancelled);
    if (!r->cancelled && !c->Get_count(s, c->byte, &bytes)) r->bytes = bytes;
  }
  // The operations that have ended are marked, and the others move together, in their order.
  for (int i = 0; i < n; i++) m->ids[c->indices[i]] = UINT64_MAX;
  int kept = 0;
  for (int i = 0; i < m->pending; i++) {
    if (m->ids[i] == UINT64_MAX) continue;
    m->ids[kept] = m->ids[i];
    c->requests[kept++] = c->requests[i];
  }
  m->pending = kept;
  return n;
}

static void cancel(plaitk_mpi *m, uint64_t id) {
  calls *c = m->native;
  for (int i = 0; i < m->pending; i++)
    if (m->ids[i] == id) c->Cancel(&c->requests[i]);
}

static void leave(plaitk_mpi *m, int everyone) {
  calls *c = m->native;
  int done = 0;
  if (c->Finalized(&done) || done) return;
  if (c->keyval != ABI_KEYVAL_INVALID) {
    c->Comm_delete_attr(c->self, c->keyval);
    c->Comm_free_keyval(&c->keyval);
  }
  if (!everyone) return;
  if (m->processes && !m->pending) c->Comm_free(&c->comm);
  if (m->ours) c->Finalize();
}

static void release(plaitk_mpi *m) {
  calls *c = m->native;
  if (!c) return;
  free(c->requests);
  free(c->statuses);
  free(c->indices);
  free(c);
}

const plaitk_mpi_abi ABI_TABLE = {
    ABI_NAME, load, join, start, barrier, poll, cancel, describe, leave, release,
};
