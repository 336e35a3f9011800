// The ABI that MPICH and its descendants share since 2013: those of Intel, Cray and MVAPICH too. Handles are integers.
typedef int abi_comm, abi_datatype, abi_request, abi_errhandler;

typedef struct {
  int count_lo, count_hi_and_cancelled, source, tag, error;
} abi_status;

#define ABI_NAME "mpich"
#define ABI_TABLE plaitk_mpi_mpich
#define ABI_COMM_WORLD ((abi_comm)0x44000000)
#define ABI_COMM_SELF ((abi_comm)0x44000001)
#define ABI_COMM_NULL ((abi_comm)0x04000000)
#define ABI_BYTE ((abi_datatype)0x4c00010d)
#define ABI_ERRORS_RETURN ((abi_errhandler)0x54000001)

enum {
  ABI_TAG_UB = 0x64400001,
  ABI_KEYVAL_INVALID = 0x24000000,
  ABI_SERIALIZED = 2,
  ABI_MULTIPLE = 3,
  ABI_ERR_TRUNCATE = 14,
  ABI_ERR_IN_STATUS = 17,
  ABI_ERROR_TEXT = 512
};
