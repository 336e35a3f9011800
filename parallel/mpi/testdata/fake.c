// A stand-in for an MPI library, which says what it is and does nothing. Macros make it what a test needs:
//   VERSION      of the standard, 3 if unset
//   TEXT         the library's name
//   OPENMPI      it has a symbol of Open MPI's
//   STANDARD     the version of the standard's ABI that it says it has
//   INITIALIZED  somebody has initialised it
#include <string.h>

#ifndef VERSION
#define VERSION 3
#endif
#ifndef INITIALIZED
#define INITIALIZED 0
#endif

#ifdef TEXT
int MPI_Get_version(int *version, int *subversion) {
  *version = VERSION;
  *subversion = 0;
  return 0;
}

int MPI_Get_library_version(char *text, int *size) {
  strcpy(text, TEXT);
  *size = strlen(text);
  return 0;
}

int MPI_Initialized(int *flag) {
  *flag = INITIALIZED;
  return 0;
}
#endif

#ifdef OPENMPI
int ompi_mpi_comm_world;
#endif

#ifdef STANDARD
int MPI_Abi_get_version(int *major, int *minor) {
  *major = *minor = STANDARD;
  return 0;
}
#endif
