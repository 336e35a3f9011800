// The shim between Go and an MPI library, which is opened while the program runs. Its functions never wait for another
// process, except plaitk_mpi_join and plaitk_mpi_leave. They may be called from any thread.
#ifndef PLAIT_MPI_SHIM_H
#define PLAIT_MPI_SHIM_H

#include <pthread.h>
#include <stdint.h>

enum { PLAITK_MPI_TEXT = 1024 };

// Codes of the shim beside those of MPI, which are not negative.
enum { PLAITK_MPI_ENDED = -1, PLAITK_MPI_MEMORY = -2 };

// What became of an operation. Code is 0 or MPI's error; bytes counts what a receive got.
typedef struct {
  uint64_t id;
  int64_t bytes;
  int32_t code, cancelled, truncated;
} plaitk_mpi_result;

typedef struct plaitk_mpi plaitk_mpi;

// An ABI: how the shim calls libraries of one family. The functions are described at plaitk_mpi_open and so on.
typedef struct {
  const char *name;
  int (*load)(plaitk_mpi *m);
  int (*join)(plaitk_mpi *m, int given, int communicator);
  int (*start)(plaitk_mpi *m, uint64_t id, int send, void *data, int bytes, int peer, int tag);
  int (*barrier)(plaitk_mpi *m, uint64_t id);
  int (*poll)(plaitk_mpi *m);
  void (*cancel)(plaitk_mpi *m, uint64_t id);
  void (*describe)(plaitk_mpi *m, int code, char text[PLAITK_MPI_TEXT]);
  void (*leave)(plaitk_mpi *m, int everyone);
  void (*release)(plaitk_mpi *m);
} plaitk_mpi_abi;

extern const plaitk_mpi_abi plaitk_mpi_mpich, plaitk_mpi_openmpi, plaitk_mpi_standard;

// A communicator of its own in an open library.
struct plaitk_mpi {
  const plaitk_mpi_abi *abi;
  void *library;
  void *native;         // the ABI's part
  pthread_mutex_t lock; // guards what follows, and all calls into the library
  int32_t ended;        // MPI must not be called any more
  int32_t ours;         // MPI was initialised for this communicator
  int32_t process, processes;
  int64_t tags;               // the largest tag
  int32_t pending, capacity;  // number of operations under way, and room for them
  uint64_t *ids;              // of the operations under way
  plaitk_mpi_result *results; // what plaitk_mpi_poll found
  char error[PLAITK_MPI_TEXT];
};

// What a library says of itself.
typedef struct {
  const plaitk_mpi_abi *abi;
  int32_t version, subversion; // of the standard
  int32_t initialized;
  char library[8192]; // its name and version
  char path[PLAITK_MPI_TEXT];
  char error[PLAITK_MPI_TEXT]; // why it cannot be used, or empty
} plaitk_mpi_about;

// plaitk_mpi_open opens a library by path or soname and asks it what it is. With loaded, it opens only what the process
// has loaded. It returns NULL, with the reason in about->error, if the library cannot be opened or used.
void *plaitk_mpi_open(const char *name, int loaded, plaitk_mpi_about *about);
void plaitk_mpi_close(void *library);

// plaitk_mpi_loaded writes the paths of the libraries that the process has loaded and whose names begin with libmpi, a
// line each, as far as they fit.
void plaitk_mpi_loaded(char *text, int size);

// plaitk_mpi_new prepares an open library. It returns NULL, with the reason in about->error, if a function is missing.
plaitk_mpi *plaitk_mpi_new(void *library, plaitk_mpi_about *about);

// plaitk_mpi_free frees the memory of m if the library holds none of it.
void plaitk_mpi_free(plaitk_mpi *m);

// plaitk_mpi_join initialises MPI, unless that is done, and duplicates the communicator of all processes, or the one that
// is given as Fortran's number. It returns 0, or 1 with the reason in m->error.
int plaitk_mpi_join(plaitk_mpi *m, int given, int communicator);

// plaitk_mpi_start starts to send or receive a message of some bytes, at most INT_MAX. It returns MPI's error. The
// operation's result follows from plaitk_mpi_poll if there is none.
int plaitk_mpi_start(plaitk_mpi *m, uint64_t id, int send, uintptr_t data, int bytes, int peer, int tag);

// plaitk_mpi_barrier starts an operation that ends when all processes have started it.
int plaitk_mpi_barrier(plaitk_mpi *m, uint64_t id);

// plaitk_mpi_poll moves messages along. It returns the number of results in m->results, which stay until the next call,
// or PLAITK_MPI_ENDED. If MPI itself fails it returns -3 - its error.
int plaitk_mpi_poll(plaitk_mpi *m);

// plaitk_mpi_cancel asks for the end of a receive. Its result follows, though not if a message has begun to arrive and
// never ends.
void plaitk_mpi_cancel(plaitk_mpi *m, uint64_t id);
void plaitk_mpi_describe(plaitk_mpi *m, int code, char text[PLAITK_MPI_TEXT]);

// plaitk_mpi_leave ends the use of MPI. With everyone, which says that all processes have come to it, it frees the
// communicator, and finalises MPI if m has initialised it and nobody else has finalised it. It may be called once.
void plaitk_mpi_leave(plaitk_mpi *m, int everyone);

#define PLAITK_MPI_WATCHING 2

// plaitk_mpi_memory returns memory for free, or NULL.
void *plaitk_mpi_memory(uint64_t bytes);

// plaitk_mpi_thread returns the number of the calling thread.
int plaitk_mpi_thread(void);

// plaitk_mpi_watch sleeps for pause nanoseconds, then for longer ones up to most, and calls plaitk_mpi_poll after each
// sleep, unless others have polled, whose calls polls counts, or have the lock. It returns 0 when plaitk_mpi_wake has
// changed the word from what was seen, or after a limit. It returns other results of plaitk_mpi_poll with the word of the
// lock at PLAITK_MPI_WATCHING.
int plaitk_mpi_watch(plaitk_mpi *m, uint32_t *lock, uint32_t *word, uint32_t seen, uint32_t *polls, int64_t pause,
                     int64_t most, int64_t limit);
void plaitk_mpi_wake(uint32_t *word);

// plaitk_mpi_yield lets other threads compute.
int plaitk_mpi_yield(void);

// plaitk_mpi_punctual lets sleeps of the calling thread end at most some time too late.
void plaitk_mpi_punctual(int64_t nanoseconds);

#endif
