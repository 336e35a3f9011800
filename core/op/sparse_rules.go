package op

import (
	"slices"
	"strings"

	"github.com/plait-ml/plait/core"
)

// A sparseRule applies an op some of whose arguments are sparse tensors.
type sparseRule func(a core.Application) *core.Tensor

// sparseRules holds what ops do to sparse tensors, by the names of their rows. Ops that are not here are not defined for them.
var sparseRules map[string]sparseRule

func init() {
	sparseRules = map[string]sparseRule{
		"mul": sparseMul, "div": sparseDiv, "add": sparseAdd, "sub": sparseAdd, "add_scaled": sparseAdd, "add_": sparseAddInPlace, "sub_": sparseAddInPlace, "add_scaled_": sparseAddInPlace, "pow": sparsePow,
		"matmul": sparseMatMul, "mm": sparseMatMul, "mv": sparseMatMul, "addmm": sparseAddMM,
		"sum": sparseSum, "softmax": sparseSoftmax, "log_softmax": sparseSoftmax, "norm": sparseNorm, "vector_norm": sparseNorm,
		"transpose": sparseTranspose, "t": sparseTranspose, "mT": sparseTranspose, "permute": sparsePermute,
		"index_select": sparseIndexSelect, "select": sparseSelect, "cat": sparseCat, "stack": sparseStack,
		"unsqueeze": sparseUnsqueeze, "bmm": sparseBMM, "zeros_like": sparseZerosLike, "copy_": sparseCopy,
	}
	// Where the function of a sum is the sum of the functions, entries need not be merged.
	for _, name := range strings.Fields("neg conj deg2rad rad2deg to clone contiguous real imag neg_ zero_ mul_ div_ deg2rad_ rad2deg_") {
		sparseRules[name] = onValues
	}
	for _, name := range strings.Fields(`abs sqrt square sin tan asin atan sinh tanh asinh atanh expm1 log1p erf erfinv ceil floor round trunc
		frac sign sgn relu isnan isinf signbit angle`) {
		sparseRules[name] = onMergedValues
	}
	for _, name := range strings.Fields("abs_ sqrt_ square_ sin_ tan_ asin_ atan_ sinh_ tanh_ asinh_ atanh_ expm1_ log1p_ erf_ ceil_ floor_ round_ trunc_ sign_ relu_") {
		sparseRules[name] = onMergedValues
	}
}

// refuseSparse returns the error of an op that has a rule, but not for such arguments.
func refuseSparse(a core.Application, format string, args ...any) *core.Tensor {
	return core.ErrorTensor(core.Errorf(core.NotImplemented, a.Op, format+"; to_dense() makes an ordinary tensor", args...))
}

// onValues applies an op to the values of its first tensor.
func onValues(a core.Application) *core.Tensor {
	s := sparseOf(a.Args[0])
	if s == nil {
		return refuseSparse(a, "the first tensor must be the sparse one")
	}
	for _, x := range a.Args[1:] {
		if t, ok := x.(*core.Tensor); ok && !t.IsNumber() && (t.Dim() > 0 || sparseOf(t) != nil) {
			return refuseSparse(a, "a sparse tensor is changed by a number or a 0-d tensor only, got %v", t)
		}
	}
	args := slices.Clone(a.Args)
	args[0] = s.values
	out := a.Call(args)[0]
	switch {
	case out.Err() != nil:
		return out
	case strings.HasSuffix(a.Op, "_"):
		return a.Args[0].(*core.Tensor)
	case out == s.values:
		out = out.Alias(true)
	}
	return s.with(out)
}

// onMergedValues is onValues for a function that is not linear, and is zero at zero.
func onMergedValues(a core.Application) *core.Tensor {
	s := sparseOf(a.Args[0])
	if s != nil && !s.coalesced {
		if strings.HasSuffix(a.Op, "_") {
			return core.ErrorTensor(core.Errorf(core.StateError, a.Op, "entries with equal indices must be summed first: call coalesce()"))
		}
		a.Args = slices.Clone(a.Args)
		if a.Args[0] = Coalesce(a.Args[0].(*core.Tensor)); a.Args[0].(*core.Tensor).Err() != nil {
			return a.Args[0].(*core.Tensor)
		}
	}
	return onValues(a)
}

// scalarTensor reports whether t is a number, or an ordinary tensor of no dimensions.
func scalarTensor(t *core.Tensor) bool { return t.IsNumber() || t.Dim() == 0 && t.Parts() == nil }

func firstBroken(list ...*core.Tensor) *core.Tensor {
	for _, t := range list {
		if t.Err() != nil {
			return t
		}
	}
	return nil
}

// callOn calls the op with other first tensors.
func callOn(a core.Application, first ...*core.Tensor) *core.Tensor {
	if err := firstBroken(first...); err != nil {
		return err
	}
	args := slices.Clone(a.Args)
	for i, t := range first {
		args[i] = t
	}
	return a.Call(args)[0]
}
