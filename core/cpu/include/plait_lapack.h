// The routines of LAPACK and BLAS that kernels call, of a library that is loaded at run time. They take matrices by columns.
#ifndef PLAIT_LAPACK_H
#define PLAIT_LAPACK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum plait_lapack_routine {
  PLAIT_GETRF,  // LU
  PLAIT_TRSM,   // solution with a triangle
  PLAIT_POTRF,  // Cholesky
  PLAIT_GEQRF,  // QR, as reflections
  PLAIT_ORGQR,  // Q of reflections
  PLAIT_SYEVD,  // eigenvalues
  PLAIT_GESDD,  // singular values
  PLAIT_GELSY,  // least squares
  PLAIT_GEEV,   // eigenvalues of matrices that are not symmetric
  PLAIT_SYTRF,  // LDL of a symmetric matrix
  PLAIT_ROUTINES,
};

// Those for complex numbers.
enum plait_lapack_complex_routine {
  PLAIT_C_GETRF,
  PLAIT_C_TRSM,
  PLAIT_C_POTRF,
  PLAIT_C_GEQRF,
  PLAIT_C_UNGQR,
  PLAIT_C_HEEVD,
  PLAIT_C_GESDD,
  PLAIT_C_GEEV,
  PLAIT_C_SYTRF,
  PLAIT_C_HETRF,
  PLAIT_C_GELSY,
  PLAIT_C_ROUTINES,
};

// plaitk_lapack has each routine for float and for double, and for complex numbers of such parts. Calls run on the calling thread, and any thread may call.
typedef struct plaitk_lapack {
  void *routine[PLAIT_ROUTINES][2];
  void *complex_routine[PLAIT_C_ROUTINES][2];
  bool wide;  // integers have 64 bits
} plaitk_lapack;

// Integers are passed by address, and int64_t serves both widths: the low half of a small number is that number. Where a routine writes
// one, the high half must be 0 before. The lengths of texts, 1, come last.
typedef const int64_t *plait_lapack_int;
typedef void plait_getrf(plait_lapack_int m, plait_lapack_int n, void *a, plait_lapack_int lda, void *pivots, int64_t *info);
typedef void plait_trsm(const char *side, const char *uplo, const char *trans, const char *diag, plait_lapack_int m, plait_lapack_int n,
                        const void *alpha, const void *a, plait_lapack_int lda, void *b, plait_lapack_int ldb, size_t, size_t, size_t, size_t);
typedef void plait_potrf(const char *uplo, plait_lapack_int n, void *a, plait_lapack_int lda, int64_t *info, size_t);
typedef void plait_geqrf(plait_lapack_int m, plait_lapack_int n, void *a, plait_lapack_int lda, void *tau, void *work, plait_lapack_int lwork,
                         int64_t *info);
typedef void plait_orgqr(plait_lapack_int m, plait_lapack_int n, plait_lapack_int k, void *a, plait_lapack_int lda, const void *tau, void *work,
                         plait_lapack_int lwork, int64_t *info);
typedef void plait_syevd(const char *jobz, const char *uplo, plait_lapack_int n, void *a, plait_lapack_int lda, void *values, void *work,
                         plait_lapack_int lwork, void *iwork, plait_lapack_int liwork, int64_t *info, size_t, size_t);
typedef void plait_gesdd(const char *jobz, plait_lapack_int m, plait_lapack_int n, void *a, plait_lapack_int lda, void *s, void *u,
                         plait_lapack_int ldu, void *vt, plait_lapack_int ldvt, void *work, plait_lapack_int lwork, void *iwork, int64_t *info,
                         size_t);
typedef void plait_gelsy(plait_lapack_int m, plait_lapack_int n, plait_lapack_int nrhs, void *a, plait_lapack_int lda, void *b,
                         plait_lapack_int ldb, void *pivots, const void *rcond, int64_t *rank, void *work, plait_lapack_int lwork, int64_t *info);
typedef void plait_geev(const char *left, const char *right, plait_lapack_int n, void *a, plait_lapack_int lda, void *re, void *im, void *vl,
                        plait_lapack_int ldvl, void *vr, plait_lapack_int ldvr, void *work, plait_lapack_int lwork, int64_t *info, size_t, size_t);
typedef void plait_sytrf(const char *uplo, plait_lapack_int n, void *a, plait_lapack_int lda, void *pivots, void *work, plait_lapack_int lwork,
                         int64_t *info, size_t);

// For complex numbers these take other arguments.
typedef void plait_heevd(const char *jobz, const char *uplo, plait_lapack_int n, void *a, plait_lapack_int lda, void *values, void *work,
                         plait_lapack_int lwork, void *rwork, plait_lapack_int lrwork, void *iwork, plait_lapack_int liwork, int64_t *info,
                         size_t, size_t);
typedef void plait_complex_gesdd(const char *jobz, plait_lapack_int m, plait_lapack_int n, void *a, plait_lapack_int lda, void *s, void *u,
                                 plait_lapack_int ldu, void *vt, plait_lapack_int ldvt, void *work, plait_lapack_int lwork, void *rwork,
                                 void *iwork, int64_t *info, size_t);
typedef void plait_complex_geev(const char *left, const char *right, plait_lapack_int n, void *a, plait_lapack_int lda, void *values, void *vl,
                                plait_lapack_int ldvl, void *vr, plait_lapack_int ldvr, void *work, plait_lapack_int lwork, void *rwork,
                                int64_t *info, size_t, size_t);
typedef void plait_complex_gelsy(plait_lapack_int m, plait_lapack_int n, plait_lapack_int nrhs, void *a, plait_lapack_int lda, void *b,
                                 plait_lapack_int ldb, void *pivots, const void *rcond, int64_t *rank, void *work, plait_lapack_int lwork,
                                 void *rwork, int64_t *info);

#endif
