package contract

// PairNorms writes the p-norm of the difference of each row of x [batch, n, m] and each row of z [batch, k, m]: y [batch, n, k]. With triangle,
// x and z are the same rows, and y [batch, n * (n - 1) / 2] has the pairs of a row and a later one; without, NaN does not count where p is
// infinite. All are contiguous floats of one dtype.
var PairNorms = declare(Contract{Name: "pair_norms", Outs: "y", Ins: "x z", Ints: "triangle", Floats: "p"})

// PairNormsGrad writes the gradient of x, given y and its gradient dy, which may have any layout. With triangle, x and z are the same rows, and
// y and dy [batch, n * (n - 1) / 2]: a row is in pairs with earlier ones too. A distance of 0 has no gradient.
var PairNormsGrad = declare(Contract{Name: "pair_norms_grad", Outs: "dx", Ins: "dy y x z", Ints: "triangle", Floats: "p"})

// PairAttrs are the attributes of [PairNorms] and [PairNormsGrad].
type PairAttrs struct {
	Triangle bool
	P        float64 // the norm's order, from 0 to infinity
}
