package tensor_test

import (
	"flag"
	"fmt"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/autograd"
	"github.com/plait-ml/plait/core/op"
	"github.com/plait-ml/plait/parallel/collective"
	"github.com/plait-ml/plait/parallel/mesh"
	"github.com/plait-ml/plait/parallel/tensor"
)

var (
	only   = flag.String("row", "", "test this row alone")
	trials = flag.Int("trials", 1, "placements to try for each sample of a row, on each mesh")
)

// onMesh runs fn on the ranks of a mesh of the given shape, which share a device.
func onMesh(t *testing.T, shape []int, fn func(m *mesh.Mesh) error) {
	t.Helper()
	n := core.Numel(shape)
	require.NoError(t, collective.Spawn(n, []string{"cpu:0"}, collective.Options{Timeout: 2 * time.Minute}, func(r *collective.Rank) error {
		m, err := mesh.New(r.World, shape, mesh.Options{})
		if err != nil {
			return err
		}
		return fn(m)
	}))
}

// values returns the elements of a described tensor.
func values(d op.T, r *rand.Rand) []float64 {
	if d.Values != nil {
		return d.Values
	}
	n := core.Numel(d.Shape)
	out := make([]float64, n)
	low, high := d.Low, d.High
	if low == 0 && high == 0 {
		low, high = -1, 1
	}
	order := r.Perm(n)
	for i := range out {
		if u := r.Float64(); d.Distinct {
			out[i] = low + (high-low)*(float64(order[i])+0.5)/float64(n)
		} else if out[i] = low + (high-low)*u; d.Low == 0 && d.High == 0 && math.Abs(out[i]) < 0.05 {
			out[i] += math.Copysign(0.1, out[i])
		}
		if d.Fixed && !d.DType.IsFloat() {
			out[i] = math.Floor(out[i])
		}
	}
	return out
}

// arguments returns a sample's arguments, with each described tensor as wrap makes it, and the tensors that require gradients.
func arguments(s op.Sample, seed uint64, wrap func(x *core.Tensor, special bool) *core.Tensor) (args []any, leaves []*core.Tensor) {
	r := rand.New(rand.NewPCG(seed, 1))
	tensor := func(d op.T) *core.Tensor {
		dt := core.Float64
		if d.Fixed {
			dt = d.DType
		}
		x := op.Reshape(op.To(core.FromSlice(values(d, r)), dt), d.Shape...)
		x = x.Detach()
		if dt.IsFloat() && !d.NoGrad {
			x = x.SetRequiresGrad(true)
		}
		x = wrap(x, d.Values != nil)
		if x.RequiresGrad() {
			leaves = append(leaves, x)
		}
		return x
	}
	for _, a := range s.Args {
		switch a := a.(type) {
		case op.T:
			args = append(args, tensor(a))
		case []op.T:
			list := make([]*core.Tensor, len(a))
			for i := range a {
				list[i] = tensor(a[i])
			}
			args = append(args, list)
		default:
			args = append(args, a)
		}
	}
	return args, leaves
}

// outcome is what an op gives: its results, and the gradients of its inputs for given gradients of the results.
func outcome(r *op.Row, inPlace bool, args []any, leaves []*core.Tensor, whole func(*core.Tensor) *core.Tensor) (out []*core.Tensor, err error) {
	core.ManualSeed(11)
	call := r.Call
	if inPlace {
		call = r.CallInPlace
		for i, a := range args {
			if x, ok := a.(*core.Tensor); ok {
				args[i] = op.Clone(x) // a leaf cannot be changed
				break
			}
		}
	}
	results := call(args...)
	var losses []*core.Tensor
	for _, y := range results {
		if err := y.Err(); err != nil {
			return nil, err
		}
		out = append(out, whole(y))
		if y.RequiresGrad() {
			losses = append(losses, op.Sum(op.Mul(whole(y), weights(y)), nil, false))
		}
	}
	if len(losses) > 0 {
		if err := autograd.Backward(losses...); err != nil {
			return nil, err
		}
		for _, x := range leaves {
			if g := x.Grad(); g != nil {
				out = append(out, whole(g))
			} else {
				out = append(out, nil)
			}
		}
	}
	return out, nil
}

// weights returns numbers that differ from element to element.
func weights(y *core.Tensor) *core.Tensor {
	n := core.Numel(y.Shape())
	v := make([]float64, n)
	for i := range v {
		v[i] = math.Cos(float64(i) * 1.7)
	}
	return op.To(op.Reshape(core.FromSlice(v), y.Shape()...), y.DType())
}

// placement returns a random placement of a tensor.
func placement(r *rand.Rand, shape []int, float bool) core.Placement {
	n := len(shape)
	if float {
		n++
	}
	switch i := r.IntN(n + 1); {
	case i < len(shape):
		return core.InterleavedShard(i, max(1, r.IntN(4)))
	case i == len(shape) && float:
		return core.Partial(core.Sums)
	}
	return core.Replicate()
}

func read(x *core.Tensor) ([]float64, error) {
	if x == nil {
		return nil, nil
	}
	if x.Err() == nil && x.DType().IsComplex() {
		x = op.ViewAsReal(x.Detach())
	}
	b, err := core.Values[float64](op.To(x, core.Float64))
	return b, err
}

func equal(got, want []*core.Tensor) error {
	if len(got) != len(want) {
		return fmt.Errorf("got %d results and gradients, want %d", len(got), len(want))
	}
	for i := range want {
		if (got[i] == nil) != (want[i] == nil) {
			return fmt.Errorf("result or gradient %d is there on one side only", i)
		}
		if want[i] == nil {
			continue
		}
		if !reflect.DeepEqual(append([]int{}, got[i].Shape()...), append([]int{}, want[i].Shape()...)) || got[i].DType() != want[i].DType() {
			return fmt.Errorf("result %d is %v, want %v", i, got[i], want[i])
		}
		g, err := read(got[i])
		if err != nil {
			return err
		}
		w, err := read(want[i])
		if err != nil {
			return err
		}
		for j := range w {
			if d := math.Abs(g[j] - w[j]); d > 1e-9*(1+math.Abs(w[j])) || math.IsNaN(g[j]) != math.IsNaN(w[j]) {
				return fmt.Errorf("element %d of result or gradient %d is %v, want %v", j, i, g[j], w[j])
			}
		}
	}
	return nil
}

// uninitialised are ops whose results have no values to compare.
var uninitialised = map[string]bool{"empty_like": true, "empty": true}

// TestRows compares every op on distributed tensors with the op on ordinary ones: results and gradients, for random placements.
func TestRows(t *testing.T) {
	shapes := [][]int{{2}, {3}, {2, 2}}
	for _, shape := range shapes {
		t.Run(fmt.Sprint(shape), func(t *testing.T) {
			for n, r := range op.Rows() {
				if *only != "" && r.Name != *only || uninitialised[r.Name] {
					continue
				}
				for i, s := range r.Samples {
					if testing.Short() && *only == "" && (i+n)%8 != 0 {
						continue
					}
					for trial := range *trials {
						testSample(t, r, s, shape, trial)
					}
				}
			}
		})
	}
}

func testSample(t *testing.T, r *op.Row, s op.Sample, shape []int, trial int) {
	h := fnv.New64()
	fmt.Fprint(h, r.Name, s.Name, shape, trial)
	seed := h.Sum64()
	var placed []string
	var wantErr error
	n := core.Numel(shape)
	errs := make([]error, n)
	err := collective.Spawn(n, []string{"cpu:0"}, collective.Options{Timeout: time.Minute}, func(rank *collective.Rank) error {
		var failure error
		core.Tidy(func() {
			m, err := mesh.New(rank.World, shape, mesh.Options{})
			if err != nil {
				failure = err
				return
			}
			for _, inPlace := range []bool{false, true} {
				if inPlace && r.InPlace == nil || !inPlace && r.Func == nil {
					continue
				}
				args, leaves := arguments(s, seed, func(x *core.Tensor, _ bool) *core.Tensor { return x })
				want, err := outcome(r, inPlace, args, leaves, func(x *core.Tensor) *core.Tensor { return x })
				if err != nil {
					if rank.Rank == 0 { // on every rank
						wantErr = err
					}
					return
				}
				random := rand.New(rand.NewPCG(seed, 2))
				args, leaves = arguments(s, seed, func(x *core.Tensor, special bool) *core.Tensor {
					p := make([]core.Placement, len(shape))
					for i := range p {
						p[i] = placement(random, x.Shape(), x.DType().IsFloat() && !special) // a sum has no -0
					}
					if rank.Rank == 0 {
						placed = append(placed, fmt.Sprint(p))
					}
					return tensor.Distribute(x, m, p)
				})
				whole := func(x *core.Tensor) *core.Tensor {
					if x.Parts() == nil {
						return x
					}
					return tensor.Full(x)
				}
				got, err := outcome(r, inPlace, args, leaves, whole)
				if inPlace && err != nil && strings.Contains(err.Error(), "redistribute it first") {
					err = nil
					continue
				}
				if err == nil {
					err = equal(got, want)
				}
				errs[rank.Rank] = err
			}
		})
		return failure
	})
	if wantErr != nil {
		return // the sample fails alike
	}
	for _, e := range errs {
		if err == nil {
			err = e
		}
	}
	if err != nil {
		t.Errorf("%s %q on %v, placed %s: %v", r.Name, s.Name, shape, strings.Join(placed, " "), err)
	}
}
