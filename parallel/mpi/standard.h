// The ABI of the standard since MPI 5.0. Handles are small numbers in pointers.
typedef struct abi_object *abi_comm, *abi_datatype, *abi_request, *abi_errhandler;

typedef struct {
  int source, tag, error, internal[5];
} abi_status;

#define ABI_NAME "abi"
#define ABI_TABLE plaitk_mpi_standard
#define ABI_COMM_WORLD ((abi_comm)0x101)
#define ABI_COMM_SELF ((abi_comm)0x102)
#define ABI_COMM_NULL ((abi_comm)0x100)
#define ABI_BYTE ((abi_datatype)0x247)
#define ABI_ERRORS_RETURN ((abi_errhandler)0x143)

enum {
  ABI_TAG_UB = 501,
  ABI_KEYVAL_INVALID = 0,
  ABI_SERIALIZED = 2048,
  ABI_MULTIPLE = 4096,
  ABI_ERR_TRUNCATE = 15,
  ABI_ERR_IN_STATUS = 19,
  ABI_ERROR_TEXT = 512
};
