package contract

import "github.com/plait-ml/plait/core"

// Matrices are contiguous, in float32 or float64, with any batch dimensions in front; those of [LinalgComplex] are complex.
var (
	// LinalgCross writes the cross products of the vectors of 3 elements along a dimension of x and z, contiguous floats of one dtype and shape.
	LinalgCross = declare(Contract{Name: "linalg_cross", Outs: "y", Ins: "x z", Ints: "dim"})
	// LinalgSolve writes X, the solution of A X = B; without B, the inverse of A.
	LinalgSolve = declare(Contract{Name: "linalg_solve", Outs: "x", Ins: "a b?"})
	// LinalgDet writes determinants, their signs, and the logarithms of their absolute values.
	LinalgDet = declare(Contract{Name: "linalg_det", Outs: "det sign logabs", Ins: "a"})
	// LinalgTriangular writes X, the solution of A X = B for a triangular A.
	LinalgTriangular = declare(Contract{Name: "linalg_triangular", Outs: "x", Ins: "a b", Ints: "upper unit"})
	// LinalgCholesky writes the lower triangular L of A = L L', and reads the lower triangle of A. infos, int32, has the row at which a matrix fails, or
	// 0. Without infos, a failure is an error of the call.
	LinalgCholesky = declare(Contract{Name: "linalg_cholesky", Outs: "l infos?", Ins: "a"})
	// LinalgLU writes the factors of A with pivoted rows: L, without its unit diagonal, and U. pivots, int32, lists the
	// row exchanges.
	LinalgLU = declare(Contract{Name: "linalg_lu", Outs: "lu pivots infos", Ins: "a"})
	// LinalgPermutation writes the order of A's rows, int64, after the exchanges in pivots.
	LinalgPermutation = declare(Contract{Name: "linalg_permutation", Outs: "rows", Ins: "pivots"})
	// LinalgQR writes Q [m, min(m, n)] and R of A = Q R.
	LinalgQR = declare(Contract{Name: "linalg_qr", Outs: "q r", Ins: "a"})
	// LinalgGeqrf writes R of A = Q R and, below it, the reflections I - tau v v' whose product is Q: v is 1 on the diagonal.
	LinalgGeqrf = declare(Contract{Name: "linalg_geqrf", Outs: "a tau", Ins: "a"})
	// LinalgLDL writes L, without its unit diagonal, and D of A = L D L' with its rows and columns exchanged, and reads the lower triangle of A. D has blocks
	// of one row and of two: pivots, int32, lists the exchanges, of a block of two rows twice, with a minus. infos, int32, has the first 0 of D, or 0.
	LinalgLDL = declare(Contract{Name: "linalg_ldl", Outs: "ld pivots infos", Ins: "a"})
	// LinalgEigh writes the eigenvalues of a symmetric A in ascending order, and its eigenvectors as columns.
	LinalgEigh = declare(Contract{Name: "linalg_eigh", Outs: "values vectors?", Ins: "a"})
	// LinalgSVD writes the singular values in descending order, and, or neither, U and V' of A = U S V'.
	LinalgSVD = declare(Contract{Name: "linalg_svd", Outs: "s u? vh?", Ins: "a"})
	// LinalgLstSq writes the least X that makes A X - B least, and the rank of A, int32: rcond times the largest singular value counts as 0.
	LinalgLstSq = declare(Contract{Name: "linalg_lstsq", Outs: "x ranks", Ins: "a b", Floats: "rcond"})
	// LinalgComplex does for complex matrices what the kernel of its operation does for real ones, whose operands it has: L' and V' are
	// conjugated. [LinalgEigs] is for real ones too, and writes eigenvalues and, or not, eigenvectors.
	LinalgComplex = declare(Contract{Name: "linalg_complex", Outs: "outs...", Ins: "ins...", Ints: "operation upper unit real hermitian", Floats: "rcond", Pairs: core.Leading})
)

// A LinalgOperation is what is done with matrices.
type LinalgOperation int64

// The operations of [LinalgComplex].
const (
	LinalgSolves LinalgOperation = iota
	LinalgDeterminants
	LinalgTriangles
	LinalgCholeskys
	LinalgLUs
	LinalgQRs
	LinalgEighs
	LinalgSVDs
	LinalgEigs
	LinalgReflections
	LinalgLDLs
	LinalgLeastSquares
)

// LinalgComplexAttrs are the attributes of [LinalgComplex].
type LinalgComplexAttrs struct {
	Operation LinalgOperation
	Upper     bool // of a triangular A
	Unit      bool
	Real      bool // A, whose eigenvalues are complex, is real
	Hermitian bool // and not symmetric, is the A of which LDL factors are wanted
	Rcond     float64
}

// TriangularAttrs are the attributes of [LinalgTriangular].
type TriangularAttrs struct {
	Upper bool // A is upper triangular
	Unit  bool // the diagonal is taken as ones
}
