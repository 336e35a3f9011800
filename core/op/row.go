package op

import (
	"fmt"
	"reflect"
	"slices"

	"github.com/plait-ml/plait/core"
)

// A Row describes one operation. Everything that is said about an operation more than once is derived from its row: the
// tests of its gradient, its C function, its Python function with type hints and its page in the reference.
type Row struct {
	// Name is PyTorch's name where PyTorch has the operation.
	Name string
	// Doc says in one line what the operation returns; further lines give shapes, errors and the source.
	Doc string
	// Func is the Go function: tensors, numbers, lists and, last, at most one struct of options whose zero value means
	// the defaults. It returns one or more tensors, or a slice of them.
	Func any
	// InPlace is the variant that changes its first tensor, if there is one.
	InPlace any
	// Args names and documents the arguments, in PyTorch's order.
	Args []Arg
	// Family is what the operation is filed under everywhere, set when the row is registered: the names of its files here begin
	// with it, and folders of kernels, pages of the reference and generated files are named by it.
	Family string
	// Samples are uses of the operation for tests.
	Samples []Sample
	// NoGrad says why no gradient passes, for operations of which none of the results has one.
	NoGrad string
	// NoDouble says why the derivative cannot be differentiated again, for operations where it cannot.
	NoDouble string
	// Memory marks an operation whose time goes into moving memory, not into arithmetic: recomputing it is cheap.
	Memory bool
	// Shares marks an operation a result of which may share memory with an input: a view, or the input as it is.
	Shares bool
	// Waits marks an operation whose result's shape may depend on values: it may wait for its inputs.
	Waits bool
	// Autocast is what autocast does with the inputs, set when the row is registered.
	Autocast Casts
	// Elementwise holds the operations on elements that the operation is made of, for those that are.
	Elementwise []*Elementwise
}

// An Arg describes one argument of an operation.
type Arg struct {
	Name string // PyTorch's name
	// Field is the field of the options struct that holds the argument; empty for a parameter of the function.
	Field string
	// Default is the value where none is given: nil with Optional for an absent tensor, number, or list.
	Default  any
	Optional bool
	Number   bool // a plain number may stand for the tensor; for those of elementwise operations behind the first it always may
	Doc      string
}

// A Sample is one use of an operation: the arguments of its function, with [T] for each tensor, []T for a list of them
// and nil for an absent one.
type Sample struct {
	Name string
	Args []any
	// Loose scales the tolerance for results of low precision and gradients; 0 means 1.
	Loose float64
	// Dense says that the tensors lie row-major without gaps.
	Dense bool
	// DTypes are the dtypes other than float64 in which the operation also works on this sample; nil means float32,
	// float16 and bfloat16.
	DTypes []core.DType
}

// T describes a tensor argument of a sample. Tests make it in several layouts.
type T struct {
	Shape []int
	// Low and High bound the random values; both 0 means -1 and 1, kept away from 0.
	Low, High float64
	// DType is the dtype, if it is not a floating-point one that tests may choose.
	DType core.DType
	// Fixed says that DType must be taken as it is.
	Fixed bool
	// Values are the elements row-major, where they are not random.
	Values []float64
	// NoGrad says that the operation has no gradient for this argument.
	NoGrad bool
	// Distinct keeps the random values apart from one another, for operations that choose among them.
	Distinct bool
}

// Shaped returns a description of a tensor with random elements.
func Shaped(shape ...int) T { return T{Shape: shape} }

// Between returns a description of a tensor with random elements in [low, high).
func Between(low, high float64, shape ...int) T { return T{Shape: shape, Low: low, High: high} }

// DistinctOf returns a description of a tensor whose random elements are well apart.
func DistinctOf(shape ...int) T { return T{Shape: shape, Distinct: true} }

// Indices returns a description of an int64 tensor with the given elements.
func Indices(shape []int, values ...float64) T {
	return T{Shape: shape, DType: core.Int64, Fixed: true, Values: values, NoGrad: true}
}

// Mask returns a description of a bool tensor with the given elements, 0 or 1.
func Mask(shape []int, values ...float64) T {
	return T{Shape: shape, DType: core.Bool, Fixed: true, Values: values, NoGrad: true}
}

var rows = map[string]*Row{}

// register adds the rows of a family. Families call it from init, so that derivatives may refer to any operation.
func register(family string, list ...Row) {
	for i := range list {
		r := &list[i]
		r.Family, r.Autocast = family, autocastOf[r.Name]
		r.Args = documented(r.Name, r.Args)
		if rows[r.Name] != nil {
			panic(fmt.Sprintf("op: %q registered twice", r.Name))
		}
		rows[r.Name] = r
	}
}

// Rows returns every operation, sorted by name.
func Rows() []*Row {
	out := make([]*Row, 0, len(rows))
	for _, r := range rows {
		out = append(out, r)
	}
	slices.SortFunc(out, func(a, b *Row) int {
		if a.Name < b.Name {
			return -1
		}
		return 1
	})
	return out
}

// Lookup returns the row of an operation, or nil.
func Lookup(name string) *Row { return rows[name] }

// Call applies the operation to arguments as its function takes them and returns its results.
func (r *Row) Call(args ...any) []*core.Tensor { return callFunc(r.Name, r.Func, args) }

// CallInPlace applies the variant that changes its first tensor.
func (r *Row) CallInPlace(args ...any) []*core.Tensor { return callFunc(r.Name, r.InPlace, args) }

func callFunc(name string, fn any, args []any) []*core.Tensor {
	f := reflect.ValueOf(fn)
	t := f.Type()
	in := make([]reflect.Value, 0, len(args))
	for i, a := range args {
		var want reflect.Type
		switch {
		case t.IsVariadic() && i >= t.NumIn()-1:
			want = t.In(t.NumIn() - 1).Elem()
		case i < t.NumIn():
			want = t.In(i)
		default:
			return []*core.Tensor{core.ErrorTensor(core.Errorf(core.TypeError, name, "got %d arguments, want %d", len(args), t.NumIn()))}
		}
		v := reflect.Zero(want)
		if a != nil {
			v = reflect.ValueOf(a)
			if !v.Type().AssignableTo(want) {
				if !v.Type().ConvertibleTo(want) {
					return []*core.Tensor{core.ErrorTensor(core.Errorf(core.TypeError, name, "argument %d is a %T, want %v", i, a, want))}
				}
				v = v.Convert(want)
			}
		}
		in = append(in, v)
	}
	for i := len(in); i < t.NumIn() && !(t.IsVariadic() && i == t.NumIn()-1); i++ {
		in = append(in, reflect.Zero(t.In(i)))
	}
	return results(f.Call(in))
}

// input is the argument that most operations have first.
var input = Arg{Name: "input"}

// inputAnd returns the arguments of an operation on one tensor.
func inputAnd(more ...Arg) []Arg { return append([]Arg{input}, more...) }
