package vmap

import (
	"slices"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op"
)

// each is the rule of operations that work element by element and broadcast their tensors.
func each(u *use) []*core.Tensor { return u.call(u.aligned()) }

// given reports whether tensor i is there and no number.
func (u *use) given(i int) bool { return u.tensors[i] != nil && !u.tensors[i].IsNumber() }

// rank returns the largest number of dimensions of the tensors inside vmap.
func (u *use) rank() int {
	n := 0
	for i, t := range u.tensors {
		if u.given(i) {
			n = max(n, t.Dim())
		}
	}
	return n
}

// aligned returns tensors that broadcast as those inside vmap do: batched ones of fewer dimensions get new ones behind the batch.
func (u *use) aligned() []*core.Tensor {
	n := u.rank()
	out := slices.Clone(u.whole)
	for i, t := range u.tensors {
		switch {
		case !u.given(i):
		case u.batched[i]:
			out[i] = widened(u.sameType(i, n), n)
		case n == 0:
			out[i] = op.Unsqueeze(t, 0) // else its dtype would count for less beside the batch
		}
	}
	return out
}

// sameType returns batched tensor i. The dtype of one without dimensions inside vmap counts for less than that of tensors with some of its
// kind, which the dimension of the batch must not change.
func (u *use) sameType(i, n int) *core.Tensor {
	t := u.whole[i]
	if u.tensors[i].Dim() > 0 || n == 0 || t.DType() == core.Bool {
		return t
	}
	var to core.DType
	some := false
	for j, x := range u.tensors {
		if !u.given(j) || x.Dim() == 0 || x.DType() == core.Bool {
			continue
		}
		if !some {
			to, some = x.DType(), true
		} else {
			to = core.Promote(to, x.DType())
		}
	}
	if !some || to == t.DType() || kind(t.DType()) > kind(to) {
		return t
	}
	return op.To(t, to)
}

// kind orders dtypes: integers, real numbers, complex numbers.
func kind(d core.DType) int {
	switch {
	case d.IsComplex():
		return 2
	case d.IsFloat():
		return 1
	}
	return 0
}

// widened returns a tensor whose dimension 0 is the batch with n dimensions more, of which the new ones, of size 1, follow the batch.
func widened(t *core.Tensor, n int) *core.Tensor {
	if t.Err() != nil || t.Dim() > n {
		return t
	}
	shape := append([]int{t.Size(0)}, slices.Repeat([]int{1}, n+1-t.Dim())...)
	return op.View(t, append(shape, t.Shape()[1:]...)...)
}

// all returns the tensors with the batch as dimension 0, also those that are the same for all parts.
func (u *use) all() []*core.Tensor {
	out := slices.Clone(u.whole)
	for i := range out {
		if u.given(i) && !u.batched[i] {
			out[i] = u.repeated(out[i])
		}
	}
	return out
}

// only reports whether no tensors but those given are batched.
func (u *use) only(list ...int) bool {
	for i, b := range u.batched {
		if b && !slices.Contains(list, i) {
			return false
		}
	}
	return true
}

// shifted returns a dimension of a tensor of rank dimensions as one of the tensor behind it.
func (u *use) shifted(d, rank int) (int, error) {
	d, err := core.WrapDim(u.Op, d, rank)
	return d + 1, err
}

// through returns the dimensions of the tensor behind one of rank dimensions, but for the batch.
func through(rank int) []int {
	out := make([]int, rank)
	for i := range out {
		out[i] = i + 1
	}
	return out
}

// A where says which of an operation's arguments are dimensions, by their index.
type where struct {
	args []int
	// every says that no dimension means every one.
	every bool
	// more is by how many dimensions the result, whose dimensions are meant, has more than the tensor.
	more int
}

// along is the rule of operations that work along the dimensions that arguments say, on one tensor or several of the same number of
// dimensions.
func along(args ...int) rule { return where{args: args}.rule }

// over is along for operations that take no dimension for every one.
func over(arg int) rule { return where{args: []int{arg}, every: true}.rule }

func (w where) rule(u *use) []*core.Tensor {
	n := u.rank()
	for i, t := range u.tensors {
		if u.given(i) && t.Dim() != n {
			return nil
		}
	}
	tensors := u.all()
	single := n == 0 && w.more == 0
	if single { // works along its one dimension
		for i, t := range tensors {
			if u.given(i) {
				tensors[i] = op.Unsqueeze(t, 1)
			}
		}
	}
	args, err := w.shift(u, max(n+w.more, 1))
	if err != nil {
		return []*core.Tensor{core.ErrorTensor(err)}
	}
	for _, t := range tensors {
		if t != nil && t.Err() != nil {
			return []*core.Tensor{t}
		}
	}
	out := slices.Clone(u.Call(op.Replaced(args, tensors)))
	for i, t := range out {
		if t.Err() != nil {
			return []*core.Tensor{t}
		}
		if single && t.Dim() == 2 && t.Size(1) == 1 {
			out[i] = op.Squeeze(t, 1)
		} else if single && t.Dim() == 2 {
			return nil
		}
	}
	return u.results(out)
}

// shift returns the arguments with dimensions of n as those behind the batch.
func (w where) shift(u *use, n int) ([]any, error) {
	args := slices.Clone(u.Args)
	for _, i := range w.args {
		switch d := args[i].(type) {
		case int:
			v, err := u.shifted(d, n)
			if err != nil {
				return nil, err
			}
			args[i] = v
		case *int:
			if d == nil {
				continue
			}
			v, err := u.shifted(*d, n)
			if err != nil {
				return nil, err
			}
			args[i] = &v
		case []int:
			if len(d) == 0 && w.every {
				args[i] = through(n)
				continue
			}
			list := slices.Clone(d)
			for j := range list {
				v, err := u.shifted(list[j], n)
				if err != nil {
					return nil, err
				}
				list[j] = v
			}
			args[i] = list
		case nil:
			if w.every {
				args[i] = through(n)
			}
		}
	}
	return args, nil
}

// leading is the rule of operations on tensors of at least n dimensions that take any number of dimensions in front of those.
func leading(n int) rule {
	return func(u *use) []*core.Tensor {
		for i, t := range u.tensors {
			if u.given(i) && t.Dim() < n {
				return nil
			}
		}
		return u.call(u.aligned())
	}
}

// stacked is the rule of operations that work on each of the things along dimension 0 of tensors with n dimensions, and of a tensor of one
// dimension less as on one thing.
func stacked(n int) rule {
	return func(u *use) []*core.Tensor {
		for i, t := range u.tensors {
			if u.given(i) && t.Dim() != u.tensors[0].Dim() {
				return nil
			}
		}
		switch u.tensors[0].Dim() {
		case n - 1:
			return u.call(u.all())
		case n:
			return u.folded(u.Args, u.all())
		}
		return nil
	}
}

// folded calls the operation with the batch, dimension 0, and dimension 1 of all tensors as one, and takes them apart in the results.
func (u *use) folded(args []any, tensors []*core.Tensor) []*core.Tensor {
	n := -1
	joined := slices.Clone(tensors)
	for i, t := range tensors {
		if !u.given(i) {
			continue
		}
		if t.Err() != nil {
			return []*core.Tensor{t}
		}
		if n < 0 {
			n = t.Size(1)
		}
		joined[i] = op.Flatten(t, 0, 1)
		if joined[i].Err() != nil {
			return joined[i : i+1]
		}
	}
	out := slices.Clone(u.Call(op.Replaced(args, joined)))
	for i, t := range out {
		if t.Err() != nil {
			return []*core.Tensor{t}
		}
		out[i] = op.Unflatten(t, 0, u.size, n)
	}
	return u.results(out)
}

// foldedFirst is folded for operations with one result, of whose tensors the first alone is batched and has the things along dimension 0.
func (u *use) foldedFirst() []*core.Tensor {
	tensors := slices.Clone(u.whole)
	tensors[0] = op.Flatten(tensors[0], 0, 1)
	if tensors[0].Err() != nil {
		return tensors[:1]
	}
	return []*core.Tensor{u.with(op.Unflatten(u.Call(op.Replaced(u.Args, tensors))[0], 0, u.size, u.tensors[0].Size(0)))}
}

// composed is the rule of an operation that other ones make of its tensors.
func composed(f func(u *use) *core.Tensor) rule {
	return func(u *use) []*core.Tensor {
		if t := f(u); t != nil {
			return []*core.Tensor{t}
		}
		return nil
	}
}

func argument[A any](u *use, i int) A {
	a, _ := u.Args[i].(A)
	return a
}
