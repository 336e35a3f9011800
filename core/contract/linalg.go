package contract

import "github.com/plait-ml/plait/core"

// Matrices are contiguous, of float32 or float64, stacked along any dimensions in front.
var (
	// LinalgSolve writes the X of A X = B, or without B the inverse of A.
	LinalgSolve = declare(Contract{Name: "linalg_solve", Outs: "x", Ins: "a b?"})
	// LinalgDet writes determinants, their signs and the logarithms of their sizes.
	LinalgDet = declare(Contract{Name: "linalg_det", Outs: "det sign logabs", Ins: "a"})
	// LinalgTriangular writes the X of A X = B for a triangular A.
	LinalgTriangular = declare(Contract{Name: "linalg_triangular", Outs: "x", Ins: "a b", Ints: "upper unit"})
	// LinalgCholesky writes the lower triangular L of A = L L'. infos is int32: where a matrix fails, or 0; without it a
	// failure is the call's error.
	LinalgCholesky = declare(Contract{Name: "linalg_cholesky", Outs: "l infos?", Ins: "a"})
	// LinalgLU writes L, without its diagonal of ones, and U of A with its rows exchanged, as pivots, int32, say.
	LinalgLU = declare(Contract{Name: "linalg_lu", Outs: "lu pivots infos", Ins: "a"})
	// LinalgPermutation writes, int64, which row of A is where after the exchanges that pivots say.
	LinalgPermutation = declare(Contract{Name: "linalg_permutation", Outs: "rows", Ins: "pivots"})
	// LinalgQR writes Q [m, min(m, n)] and R of A = Q R.
	LinalgQR = declare(Contract{Name: "linalg_qr", Outs: "q r", Ins: "a"})
	// LinalgEigh writes the ascending eigenvalues and, in columns, the eigenvectors of a symmetric A.
	LinalgEigh = declare(Contract{Name: "linalg_eigh", Outs: "values vectors", Ins: "a"})
	// LinalgSVD writes U, the descending singular values and V' of A = U S V'.
	LinalgSVD = declare(Contract{Name: "linalg_svd", Outs: "u s vh", Ins: "a"})
)

// TriangularAttrs are the attributes of [LinalgTriangular].
type TriangularAttrs struct {
	Upper bool // which triangle A is
	Unit  bool // its diagonal counts as ones
}

// AddTo adds the attributes to a call and returns it.
func (a TriangularAttrs) AddTo(c *core.Call) *core.Call { return c.Int(Flag(a.Upper), Flag(a.Unit)) }

// TriangularOf reads the attributes of a call.
func TriangularOf(c *core.Call) TriangularAttrs {
	return TriangularAttrs{c.Ints[0] != 0, c.Ints[1] != 0}
}
