package collective

import (
	"fmt"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/contract"
)

// A ReduceOp combines the elements of the ranks, in rank order.
type ReduceOp uint8

// The reductions. Half dtypes are reduced in float32 and rounded once. For bools a sum is OR and a product is AND.
const (
	Sum     ReduceOp = iota
	Avg              // the sum, divided by the world size at the end; floating-point dtypes only
	Product          //
	Min              // NaN if any element is NaN
	Max              // NaN if any element is NaN
	BitAnd           // BitAnd, BitOr and BitXor need integers or bools
	BitOr            //
	BitXor           //
)

var reduceOps = [...]struct {
	name   string
	kernel contract.CombineOp
}{{"sum", contract.CombineSum}, {"avg", contract.CombineSum}, {"product", contract.CombineProduct}, {"min", contract.CombineMin}, {"max", contract.CombineMax},
	{"band", contract.CombineBitAnd}, {"bor", contract.CombineBitOr}, {"bxor", contract.CombineBitXor}}

func (o ReduceOp) String() string {
	if int(o) < len(reduceOps) {
		return reduceOps[o].name
	}
	return fmt.Sprintf("ReduceOp(%d)", o)
}

// check returns an error if elements of d cannot be reduced by o.
func (o ReduceOp) check(op string, d core.DType) error {
	switch {
	case int(o) >= len(reduceOps):
		return core.Errorf(core.ValueError, op, "got the reduction %d, want one of sum, avg, product, min, max, band, bor and bxor", o)
	case d.IsComplex() && o != Sum && o != Avg:
		return core.Errorf(core.DTypeError, op, "%v is not defined for %v, want sum or avg", o, d)
	case o == Avg && !d.Differentiable():
		return core.Errorf(core.DTypeError, op, "avg wants a floating-point dtype, got %v; sum and divide", d)
	case o >= BitAnd && d.IsFloat():
		return core.Errorf(core.DTypeError, op, "%v wants an integer dtype or bool, got %v", o, d)
	}
	return nil
}
