package contract

import "github.com/plait-ml/plait/core"

var (
	// CumSum, CumProd and LogCumSumExp write running reductions along a dimension.
	CumSum       = declare(Contract{Name: "cumsum", Outs: "y", Ins: "x", Ints: "dim reverse", Pairs: core.Linear})
	CumProd      = declare(Contract{Name: "cumprod", Outs: "y", Ins: "x", Ints: "dim reverse"})
	LogCumSumExp = declare(Contract{Name: "logcumsumexp", Outs: "y", Ins: "x", Ints: "dim reverse"})
	// ComplexCumProd is CumProd of complex numbers, and ComplexLinearScan is LinearScan of them. Operations make them of products of slices
	// where a device lacks them.
	ComplexCumProd    = declare(Contract{Name: "complex_cumprod", Outs: "y", Ins: "x", Ints: "dim reverse", Pairs: core.Linear})
	ComplexLinearScan = declare(Contract{Name: "complex_linear_scan", Outs: "y", Ins: "a b", Ints: "dim reverse", Pairs: core.Linear})
	// CumMax and CumMin also write the index of each running extremum. They have no reverse.
	CumMax = declare(Contract{Name: "cummax", Outs: "values indices", Ins: "x", Ints: "dim"})
	CumMin = declare(Contract{Name: "cummin", Outs: "values indices", Ins: "x", Ints: "dim"})
	// LinearScan writes y[i] = a[i] * y[i-1] + b[i]; in reverse, y[i] = a[i+1] * y[i+1] + b[i]. All are contiguous floats of one shape.
	LinearScan = declare(Contract{Name: "linear_scan", Outs: "y", Ins: "a b", Ints: "dim reverse"})
)

// ScanAttrs are the attributes of the scans that can run in reverse.
type ScanAttrs struct {
	Dim     int
	Reverse bool // from the last element to the first
}

// AddTo adds the attributes to a call and returns it.
func (a ScanAttrs) AddTo(c *core.Call) *core.Call {
	return c.Int(int64(a.Dim), Flag(a.Reverse))
}

// ScanOf reads the attributes of a call. [CumMax] and [CumMin] have the dimension only.
func ScanOf(c *core.Call) ScanAttrs {
	return ScanAttrs{int(c.Ints[0]), len(c.Ints) > 1 && c.Ints[1] != 0}
}
