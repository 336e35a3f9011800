// Package mpi moves bytes between the processes of a parallel program with MPI, the message passing interface.
//
// MPI is not linked, and no header of it is needed to build: the library is opened while the program runs, and any of three kinds will do.
// MPICH and its descendants (Intel's, Cray's, MVAPICH) share one ABI, Open MPI has another, and MPI 5 defines a third for all. The C code
// that calls them is written once, in calls.h, and compiled for each.
//
// A program is started by the launcher of the library that it uses:
//
//	mpiexec -n 4 python train.py
//
// [Join] finds the library ([Find] says how), initialises MPI and returns a [Transport], which knows the processes by numbers. Messages are
// of two kinds. [Transport.Post] sends a message of any length that its receiver did not ask for: it goes to the function given to
// [Transport.Listen]. [Transport.Send] and [Transport.Recv] move data of a known length straight between two processes' memory, and match by
// a tag.
//
// # Who calls MPI
//
// All calls are non-blocking and made under one lock. The goroutine that gives an operation starts it if the lock is free. A goroutine that
// waits for messages calls [Transport.Progress], which moves them along. If nobody does, a goroutine of the transport polls. It sleeps for 20 us,
// and longer each time: up to 100 us, and after 10 ms up to 0.4 ms if operations are pending, and 2 ms if none are. Where each process has four
// cores, it polls without sleeps for 50 us after the last thing that happened. An operation that is given wakes it from sleeps of more than
// 100 us, and with such cores from any. It sleeps and polls in C: for a thread that is there for a short time, Go's scheduler wakes a thread of its
// own every 20 us, which costs more than the polls.
//
// Listeners and done functions are called by the transport's goroutine, or inside Progress and Close, never inside the other methods, so these
// may be called with locks held that the functions take. A function that panics ends the transport with an error.
//
// # Memory
//
// MPI reads and writes the memory of Send and Recv until done is called; Go memory is pinned for that time. There is one exception. If a
// process is lost, or the transport is closed, while its message is on the way, MPI may be unable to give the memory back: MPI can cancel
// a receive whose message has not begun to arrive, and nothing else. Such an operation ends, after a short while, with a [HeldError]. The
// rule is: memory of an operation that ended with a HeldError must stay allocated until the process ends, and what it holds is not defined.
// Memory from Go's heap stays reachable and pinned without further ado. Memory of C must not be freed or used again. Such a process has lost
// a peer and is about to end, so nothing is gained by taking the memory back.
//
// # The end
//
// [Transport.Close] waits until all processes have come to it before it finalises MPI, which would wait without bound for one that is dead.
// If MPI was initialised by somebody else, such as mpi4py, it stays initialised. If somebody else finalises MPI first, the transport ends
// in time. A process that forks must not use MPI in the child. A program whose main function is Go's ends with [Exit].
//
// The files, from the bottom up:
//   - mpich.h, openmpi.h, standard.h: the types and constants of the three ABIs
//   - calls.h, and mpich.c, openmpi.c, standard.c, which include it: the calls into MPI
//   - library.c, library.go: a library is opened and asked what it is; search.go: which one
//   - shim.h, shim.c: the C functions that Go calls
//   - launcher.go: what the environment says of the launcher
//   - join.go: initialisation; transport.go: operations; lock.go: the lock, which C can take too; progress.go: polling and sleeping;
//     post.go: messages for the listener; deliver.go: calls to the program; lose.go, close.go, exit.go: the ends
package mpi
