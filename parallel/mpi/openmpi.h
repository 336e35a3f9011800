// The ABI of Open MPI. Handles are addresses of objects in the library.
typedef struct abi_object *abi_comm, *abi_datatype, *abi_request, *abi_errhandler;

typedef struct {
  int source, tag, error, cancelled;
  size_t bytes;
} abi_status;

#define ABI_NAME "openmpi"
#define ABI_TABLE plaitk_mpi_openmpi
#define ABI_SYMBOLS
#define ABI_COMM_WORLD ompi_mpi_comm_world
#define ABI_COMM_SELF ompi_mpi_comm_self
#define ABI_COMM_NULL ompi_mpi_comm_null
#define ABI_BYTE ompi_mpi_byte
#define ABI_ERRORS_RETURN ompi_mpi_errors_return

enum {
  ABI_TAG_UB = 0,
  ABI_KEYVAL_INVALID = -1,
  ABI_SERIALIZED = 2,
  ABI_MULTIPLE = 3,
  ABI_ERR_TRUNCATE = 15,
  ABI_ERR_IN_STATUS = 18,
  ABI_ERROR_TEXT = 256
};
