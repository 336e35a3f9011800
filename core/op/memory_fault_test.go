package op_test

import (
	"cmp"
	"maps"
	"reflect"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/autograd"
	"github.com/plait-ml/plait/core/coretest"
	"github.com/plait-ml/plait/core/op"
)

// faultRank is a rank that no other test uses: allocations fail in it alone.
const faultRank = 77

// A faulty is a test of failing allocations.
type faulty struct {
	t   testing.TB
	dev core.Device
}

// inFaultRank runs subtests in that rank.
func inFaultRank(t *testing.T, names []string, fn func(f *faulty, name string)) {
	dev, err := core.OpenDevice("cpu:0")
	require.NoError(t, err)
	ctx := core.NewRankContext(faultRank, dev)
	defer ctx.Free()
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			core.WithContext(ctx, func() { fn(&faulty{t: t, dev: dev}, name) })
		})
	}
}

// arguments makes a sample's arguments, and leaves nothing else behind.
func (f *faulty) arguments(m *maker, s op.Sample) (args []any) {
	core.Tidy(func() {
		args = m.arguments(s)
		for _, x := range m.leaves {
			x.Keep()
		}
	})
	return args
}

// unchanged is [coretest.Unchanged] of tensors and numbers.
func (f *faulty) unchanged(tensors []*core.Tensor) (check func()) {
	var list []*core.Tensor
	for _, x := range tensors {
		if !x.IsNumber() {
			list = append(list, x)
		}
	}
	return coretest.Unchanged(f.t, f.dev, faultRank, list...)
}

// settle waits for results, releases them and returns the first error.
func settle(list []*core.Tensor) error {
	var first error
	for _, x := range list {
		if x == nil {
			continue
		}
		if err := x.Wait(); err != nil && first == nil {
			first = err
		}
	}
	for _, x := range list {
		x.Release()
	}
	return first
}

func TestOutOfMemoryInEveryOperation(t *testing.T) {
	var names []string
	for _, r := range op.Rows() {
		names = append(names, r.Name)
	}
	inFaultRank(t, names, func(f *faulty, name string) {
		r := op.Lookup(name)
		for i, s := range r.Samples {
			if testing.Short() && i > 0 {
				break
			}
			outOfMemory(f, r, s)
			inPlaceOutOfMemory(f, r, s)
		}
	})
}

func outOfMemory(f *faulty, r *op.Row, s op.Sample) {
	m := newMaker(r.Name+s.Name, core.Float64, transposed, r.NoGrad == "")
	args := f.arguments(m, s)
	var leaves []*core.Tensor
	for _, x := range m.leaves {
		if x.RequiresGrad() {
			leaves = append(leaves, x)
		}
	}
	check := f.unchanged(m.leaves)
	run := func() error {
		outs := m.apply(r.Call, args, m.leaves)
		var ends []*core.Tensor
		for _, x := range outs {
			if err := x.Err(); err != nil {
				return cmp.Or(err, settle(outs))
			}
			if x.RequiresGrad() {
				ends = append(ends, x)
			}
		}
		if len(ends) == 0 || len(leaves) == 0 {
			return settle(outs)
		}
		seeds := make([]*core.Tensor, len(ends))
		for i, x := range ends {
			seeds[i] = op.OnesLike(x, op.TensorOptions{})
		}
		grads, err := autograd.Grad(ends, leaves, seeds, autograd.Options{AllowUnused: true})
		return cmp.Or(settle(seeds), err, settle(outs), settle(grads))
	}
	require.NoError(f.t, run(), s.Name)
	check()
	coretest.EachAllocation(f.t, run, check, faultRank)
	settle(m.leaves)
}

func inPlaceOutOfMemory(f *faulty, r *op.Row, s op.Sample) {
	if reflect.TypeOf(r.InPlace) != reflect.TypeOf(r.Func) {
		return
	}
	if first, ok := s.Args[0].(op.T); !ok || first.Fixed {
		return
	}
	m := newMaker(r.Name+s.Name, core.Float64, transposed, r.NoGrad == "")
	args := f.arguments(m, s)
	probe := m.apply(r.Call, args, m.leaves)
	fits := len(probe) > 0 && probe[0].DType() == core.Float64 && reflect.DeepEqual(probe[0].Shape(), m.leaves[0].Shape())
	settle(probe)
	if !fits {
		return
	}
	in := append([]*core.Tensor{op.Clone(m.leaves[0])}, m.leaves[1:]...)
	check := f.unchanged(in)
	coretest.EachAllocation(f.t, func() error {
		out := m.apply(r.CallInPlace, args, in)
		if err := out[0].Err(); err != nil {
			return err
		}
		return out[0].Wait()
	}, check, faultRank)
	settle(in)
	settle(m.leaves)
}

// Operations in place whose operands share memory take copies of them first.
func TestOutOfMemoryInPlaceLeavesTheTarget(t *testing.T) {
	square := func() *core.Tensor {
		return op.Reshape(place([]float64{1, 2, 3, 4, 5, 6, 7, 8, 9}, core.Float64, []int{9}, contiguous), 3, 3)
	}
	rows := func() *core.Tensor {
		return op.Reshape(core.FromSlice([]int64{2, 0, 1}), 3)
	}
	mT := func(x *core.Tensor) *core.Tensor { return op.Transpose(x, 0, 1) }
	cases := map[string]func(x *core.Tensor) *core.Tensor{
		"add_": func(x *core.Tensor) *core.Tensor { return op.AddInPlace(x, mT(x)) },
		"add_ shifted": func(x *core.Tensor) *core.Tensor {
			return op.AddInPlace(op.Narrow(x, 0, 1, 2), op.Narrow(x, 0, 0, 2))
		},
		"addcmul_":    func(x *core.Tensor) *core.Tensor { return op.AddcmulInPlace(x, mT(x), mT(x), 2) },
		"lerp_":       func(x *core.Tensor) *core.Tensor { return op.LerpInPlace(x, mT(x), mT(x)) },
		"clamp_":      func(x *core.Tensor) *core.Tensor { return op.ClampInPlace(x, mT(x), nil) },
		"pow_":        func(x *core.Tensor) *core.Tensor { return op.PowInPlace(x, mT(x)) },
		"div_":        func(x *core.Tensor) *core.Tensor { return op.DivInPlace(x, mT(x)) },
		"copy_":       func(x *core.Tensor) *core.Tensor { return op.CopyInPlace(x, mT(x)) },
		"index_add_":  func(x *core.Tensor) *core.Tensor { return op.IndexAddInPlace(x, 0, rows(), mT(x)) },
		"index_copy_": func(x *core.Tensor) *core.Tensor { return op.IndexCopyInPlace(x, 1, rows(), mT(x)) },
		"index_put_":  func(x *core.Tensor) *core.Tensor { return op.IndexPutInPlace(x, []*core.Tensor{rows()}, mT(x), true) },
		"addmm_":      func(x *core.Tensor) *core.Tensor { return op.AddMMInPlace(x, x, mT(x), 1, 1) },
		"scatter_add_": func(x *core.Tensor) *core.Tensor {
			return op.ScatterAddInPlace(x, 0, op.Expand(op.Reshape(rows(), 3, 1), 3, 3), mT(x))
		},
		"masked_scatter_": func(x *core.Tensor) *core.Tensor { return op.MaskedScatterInPlace(x, op.Gt(x, core.Num(4)), mT(x)) },
		"masked_fill_":    func(x *core.Tensor) *core.Tensor { return op.MaskedFillInPlace(x, op.Gt(x, core.Num(4)), core.Num(0)) },
		"cumsum_":         func(x *core.Tensor) *core.Tensor { return op.CumSumInPlace(x, 0) },
		"uniform_":        func(x *core.Tensor) *core.Tensor { return op.UniformInPlace(mT(x), 0, 1, op.RandomOptions{}) },
		"put_": func(x *core.Tensor) *core.Tensor {
			return op.PutInPlace(x, rows(), op.Reshape(op.Narrow(x, 0, 0, 1), 3), true)
		},
	}
	names := slices.Sorted(maps.Keys(cases))
	inFaultRank(t, names, func(f *faulty, name string) {
		for _, grad := range []bool{false, true} {
			leaf := square().SetRequiresGrad(grad)
			x := op.Mul(leaf, core.Num(1))
			check := f.unchanged([]*core.Tensor{x, leaf})
			coretest.EachAllocation(t, func() (err error) {
				core.Tidy(func() {
					r := cases[name](x)
					if err = r.Err(); err == nil {
						err = r.Wait()
					}
				})
				return err
			}, check, faultRank)
			if grad { // what failed left nothing in the graph
				require.NoError(t, autograd.Backward(op.Sum(x, nil, false)))
			}
		}
	})
}
