// Compares the types and constants of ABI, one of the headers of this package, with a real header of MPI.
#include MPI
#include <stddef.h>
#include ABI

#define SAME(a, b) _Static_assert((long)(a) == (long)(b), #b)
#define SAME_FIELD(a, b)                                                                                               \
  SAME(offsetof(abi_status, a), offsetof(MPI_Status, b));                                                              \
  SAME(sizeof(((abi_status *)0)->a), sizeof(((MPI_Status *)0)->b))

SAME(sizeof(abi_comm), sizeof(MPI_Comm));
SAME(sizeof(abi_datatype), sizeof(MPI_Datatype));
SAME(sizeof(abi_request), sizeof(MPI_Request));
SAME(sizeof(abi_errhandler), sizeof(MPI_Errhandler));
SAME(sizeof(abi_status), sizeof(MPI_Status));
SAME(_Alignof(abi_status), _Alignof(MPI_Status));
SAME_FIELD(source, MPI_SOURCE);
SAME_FIELD(tag, MPI_TAG);
SAME_FIELD(error, MPI_ERROR);
SAME(ABI_TAG_UB, MPI_TAG_UB);
SAME(ABI_KEYVAL_INVALID, MPI_KEYVAL_INVALID);
SAME(ABI_SERIALIZED, MPI_THREAD_SERIALIZED);
SAME(ABI_MULTIPLE, MPI_THREAD_MULTIPLE);
SAME(ABI_ERR_TRUNCATE, MPI_ERR_TRUNCATE);
SAME(ABI_ERR_IN_STATUS, MPI_ERR_IN_STATUS);
SAME(ABI_ERROR_TEXT, MPI_MAX_ERROR_STRING);
_Static_assert(MPI_SUCCESS == 0 && MPI_UNDEFINED < 0, "codes");
_Static_assert(MPI_MAX_LIBRARY_VERSION_STRING <= 8192, "length");

// The handles are compared when the program runs, for casts are no constants. Those of Open MPI are symbols.
#ifdef ABI_SYMBOLS
#define ADDRESS(handle) ((void *)&(handle))
#else
#define ADDRESS(handle) ((void *)(ptrdiff_t)(handle))
#endif
#define DIFFER(abi, mpi) (ADDRESS(abi) != (void *)(ptrdiff_t)(mpi))

int main(void) {
  return DIFFER(ABI_COMM_WORLD, MPI_COMM_WORLD) || DIFFER(ABI_COMM_SELF, MPI_COMM_SELF) ||
         DIFFER(ABI_COMM_NULL, MPI_COMM_NULL) || DIFFER(ABI_BYTE, MPI_BYTE) ||
         DIFFER(ABI_ERRORS_RETURN, MPI_ERRORS_RETURN);
}
