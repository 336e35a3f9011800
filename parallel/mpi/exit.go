//go:build cgo && linux

package mpi

// #include <stdlib.h>
import "C"

// Exit ends the process as C's exit does: what libraries have registered for the end runs, which os.Exit and a return from Go's main leave
// out. Recent versions of MPICH, such as 5.0, tell their launcher only then that the end is no failure. A program whose main function is
// Go's calls Exit after [Transport.Close]. Python's end is C's.
func Exit(code int) { C.exit(C.int(code)) }
