// What the C files of this package share.
#ifndef PLAIT_MPI_COMMON_H
#define PLAIT_MPI_COMMON_H

#include "shim.h"

#include <signal.h>

// The signals' handlers and the thread's mask. A library's own threads must not receive signals, which belong to the
// language runtimes of the process, and its handlers must not take the place of theirs.
typedef struct {
  sigset_t mask;
  struct sigaction actions[65];
} plaitk_mpi_signals;

void plaitk_mpi_hold_signals(plaitk_mpi_signals *s);
void plaitk_mpi_restore_signals(const plaitk_mpi_signals *s);

// plaitk_mpi_room makes room for one more operation. It returns 0 if there is no memory.
int plaitk_mpi_room(plaitk_mpi *m);

// plaitk_mpi_finalized tells m that MPI is being finalised, by m or by somebody else.
void plaitk_mpi_finalized(plaitk_mpi *m);

#endif
