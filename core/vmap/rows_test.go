package vmap_test

import (
	"flag"
	"fmt"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/autograd"
	"github.com/plait-ml/plait/core/coretest"
	_ "github.com/plait-ml/plait/core/cpu"
	"github.com/plait-ml/plait/core/op"
	"github.com/plait-ml/plait/core/vmap"
)

var only = flag.String("row", "", "test this row alone")

const size = 3 // of the batch

// values returns the elements of a described tensor, for part i of a batch.
func values(d op.T, r *rand.Rand, i int) []float64 {
	if d.Values != nil {
		return append(slices.Clone(d.Values[i%max(len(d.Values), 1):]), d.Values[:i%max(len(d.Values), 1)]...)
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

// described returns the tensors among the arguments of a sample.
func described(s op.Sample) (list []op.T) {
	for _, a := range s.Args {
		switch a := a.(type) {
		case op.T:
			list = append(list, a)
		case []op.T:
			list = append(list, a...)
		}
	}
	return list
}

// filled returns the arguments of a sample with tensors in the place of what describes them.
func filled(s op.Sample, tensors []*core.Tensor) []any {
	args := slices.Clone(s.Args)
	for i, a := range args {
		switch a := a.(type) {
		case op.T:
			args[i], tensors = tensors[0], tensors[1:]
		case []op.T:
			args[i], tensors = slices.Clone(tensors[:len(a)]), tensors[len(a):]
		}
	}
	return args
}

// made returns a tensor, for each part of a batch if batched is set: then dimension 0 is the batch, which does not lie first in memory.
func made(d op.T, batched bool, r *rand.Rand) *core.Tensor {
	dt := core.Float64
	if d.Fixed {
		dt = d.DType
	}
	n := 1
	if batched {
		n = size
	}
	parts := make([]*core.Tensor, n)
	for i := range parts {
		parts[i] = op.Reshape(op.To(core.FromSlice(values(d, r, i)), dt), d.Shape...)
	}
	out := parts[0]
	if batched {
		stacked := op.Stack(parts, len(d.Shape))
		out = op.Movedim(stacked, []int{len(d.Shape)}, []int{0})
	}
	out = out.Detach()
	if dt.IsFloat() && !d.NoGrad {
		out.SetRequiresGrad(true)
	}
	return out
}

func call(r *op.Row, inPlace bool, args []any) []*core.Tensor {
	core.ManualSeed(11)
	if !inPlace {
		return r.Call(args...)
	}
	for i, a := range args {
		if x, ok := a.(*core.Tensor); ok {
			args[i] = op.Clone(x) // a leaf cannot be changed
			break
		}
	}
	return r.CallInPlace(args...)
}

// outcome returns results, and the gradients of leaves for given gradients of the results.
func outcome(results, leaves []*core.Tensor) (out []*core.Tensor, err error) {
	var losses []*core.Tensor
	for _, y := range results {
		if err := y.Err(); err != nil {
			return nil, err
		}
		out = append(out, y)
		if y.RequiresGrad() {
			losses = append(losses, op.Sum(op.Mul(y, weights(y)), nil, false))
		}
	}
	if len(losses) > 0 {
		if err := autograd.Backward(losses...); err != nil {
			return nil, err
		}
	}
	for _, x := range leaves {
		g := x.Grad()
		if g != nil {
			g = g.Alias(false)
		}
		out = append(out, g)
		if g != nil {
			x.SetGrad(nil)
		}
	}
	return out, nil
}

// weights returns numbers that differ from element to element.
func weights(y *core.Tensor) *core.Tensor {
	v := make([]float64, y.Numel())
	for i := range v {
		v[i] = math.Cos(float64(i) * 1.7)
	}
	return op.To(op.Reshape(core.FromSlice(v), y.Shape()...), y.DType())
}

func read(x *core.Tensor) ([]float64, error) {
	if x.DType().IsComplex() {
		x = op.ViewAsReal(x.Detach())
	}
	return core.Values[float64](op.To(x, core.Float64))
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
		if !slices.Equal(got[i].Shape(), want[i].Shape()) || got[i].DType() != want[i].DType() {
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

// random are rows whose parts differ from what a loop draws, and rows whose results have no values.
var random = map[string]bool{"empty_like": true, "empty": true}

// TestRows compares every row applied to all parts of a batch with a loop over the parts: results and first gradients, for each choice of
// which tensors are batched. The documentation lists the rows that have no rule.
func TestRows(t *testing.T) {
	for i, r := range op.Rows() {
		if *only == "" && !coretest.Drawn(i) || *only != "" && r.Name != *only || random[r.Name] || r.Family == "random" || r.Family == "dropout" || r.Name == "rrelu" {
			continue
		}
		for _, s := range r.Samples {
			n := len(described(s))
			for choice := 1; choice < 1<<n; choice++ {
				if n > 3 && choice&(choice-1) != 0 && choice != 1<<n-1 {
					continue // of many tensors one or all
				}
				for _, inPlace := range []bool{false, true} {
					if inPlace && (r.InPlace == nil || choice&1 == 0) || !inPlace && r.Func == nil {
						continue
					}
					core.Tidy(func() { testSample(t, r, s, choice, inPlace) })
				}
			}
		}
	}
	if *only == "" && !coretest.Race {
		checkList(t, vmap.Looped())
	}
}

// checkList compares the list in the documentation with the rows that were applied to parts one by one and have no rule.
func checkList(t *testing.T, looped []string) {
	t.Helper()
	var without []string
	for _, n := range looped {
		if base := strings.TrimSuffix(n, "_"); op.Lookup(n) == nil {
			n = base
		}
		if !vmap.HasRule(n) && !slices.Contains(without, "`"+n+"`") {
			without = append(without, "`"+n+"`")
		}
	}
	slices.Sort(without)
	text, err := os.ReadFile("../../docs/guides/vmap.md")
	require.NoError(t, err)
	_, rest, found := strings.Cut(string(text), "These have no rule:")
	require.True(t, found)
	list, _, _ := strings.Cut(rest, ".\n")
	require.Equal(t, without, strings.Fields(strings.ReplaceAll(list, ",", " ")), "docs/guides/vmap.md should list: %s", strings.Join(without, ", "))
}

func testSample(t *testing.T, r *op.Row, s op.Sample, choice int, inPlace bool) {
	h := fnv.New64()
	fmt.Fprint(h, r.Name, s.Name)
	random := rand.New(rand.NewPCG(h.Sum64(), 1))
	var whole []*core.Tensor
	for i, d := range described(s) {
		whole = append(whole, made(d, choice>>i&1 != 0, random))
	}
	compare(t, fmt.Sprintf("%s %q, batched %b, in place %v", r.Name, s.Name, choice, inPlace), whole, choice, func(own []*core.Tensor) []*core.Tensor {
		return call(r, inPlace, filled(s, own))
	})
}

// compare compares a function of tensors applied to all parts of a batch, along dimension 0 of the chosen tensors, with a loop over the parts:
// results and gradients. Where the function fails for a part, or shapes differ, it compares nothing.
func compare(t *testing.T, name string, whole []*core.Tensor, choice int, f func(own []*core.Tensor) []*core.Tensor) {
	t.Helper()
	var leaves []*core.Tensor
	for _, x := range whole {
		if x.RequiresGrad() {
			leaves = append(leaves, x)
		}
	}
	results := looped(whole, choice, f)
	if results == nil {
		return
	}
	want, err := outcome(results, leaves)
	if err != nil {
		return
	}
	results, err = together(nil, whole, choice, func(_ *vmap.Level, own []*core.Tensor) []*core.Tensor { return f(own) })
	var got []*core.Tensor
	if err == nil {
		got, err = outcome(results, leaves)
	}
	if err == nil {
		err = equal(got, want)
	}
	if err != nil && !strings.Contains(err.Error(), "not possible inside vmap") {
		t.Errorf("%s: %v", name, err)
	}
}

// TestNested compares every row applied at two levels, at which all tensors are batched, with a loop over the parts of the outer one.
func TestNested(t *testing.T) {
	for i, r := range op.Rows() {
		if *only == "" && !coretest.Drawn(i) || *only != "" && r.Name != *only || r.Func == nil || random[r.Name] || r.Family == "random" || r.Family == "dropout" || r.Name == "rrelu" {
			continue
		}
		for _, s := range r.Samples {
			core.Tidy(func() {
				draw := rand.New(rand.NewPCG(uint64(i), 1))
				list := described(s)
				choice := 1<<len(list) - 1
				var whole, leaves []*core.Tensor
				for _, d := range list {
					x := op.Stack([]*core.Tensor{made(d, true, draw), made(d, true, draw), made(d, true, draw)}, 0).Detach()
					if x.DType().IsFloat() && !d.NoGrad {
						x.SetRequiresGrad(true)
						leaves = append(leaves, x)
					}
					whole = append(whole, x)
				}
				if len(whole) == 0 {
					return
				}
				plain := func(_ *vmap.Level, own []*core.Tensor) []*core.Tensor { return call(r, false, filled(s, own)) }
				inner := func(outer *vmap.Level, own []*core.Tensor) []*core.Tensor {
					out, err := together(outer, own, choice, plain)
					if err != nil {
						return []*core.Tensor{core.ErrorTensor(err)}
					}
					for i := range out {
						if outer != nil { // a result of shapes alone is the same for all parts
							out[i] = outer.Batched(out[i])
						}
					}
					return out
				}
				results := looped(whole, choice, func(own []*core.Tensor) []*core.Tensor { return inner(nil, own) })
				if results == nil {
					return
				}
				want, err := outcome(results, leaves)
				if err != nil {
					return
				}
				results, err = together(nil, whole, choice, inner)
				var got []*core.Tensor
				if err == nil {
					got, err = outcome(results, leaves)
				}
				if err == nil {
					err = equal(got, want)
				}
				if err != nil {
					t.Errorf("%s %q: %v", r.Name, s.Name, err)
				}
			})
		}
	}
}

// looped returns the stacked results of a function for each part of the chosen tensors, or nil.
func looped(whole []*core.Tensor, choice int, f func(own []*core.Tensor) []*core.Tensor) []*core.Tensor {
	var columns [][]*core.Tensor
	for i := range size {
		own := slices.Clone(whole)
		for j, x := range whole {
			if choice>>j&1 != 0 {
				own[j] = op.Select(x, 0, i)
			}
		}
		for j, y := range f(own) {
			if y.Err() != nil {
				return nil // the sample fails for such values
			}
			if i == 0 {
				columns = append(columns, nil)
			}
			columns[j] = append(columns[j], y)
		}
	}
	results := make([]*core.Tensor, len(columns))
	for j, c := range columns {
		if results[j] = op.Stack(c, 0); results[j].Err() != nil {
			return nil // shapes depend on values
		}
	}
	return results
}

// together returns the results of a function for all parts of the chosen tensors at once, at a level inside another or nil.
func together(outer *vmap.Level, whole []*core.Tensor, choice int, f func(l *vmap.Level, own []*core.Tensor) []*core.Tensor) ([]*core.Tensor, error) {
	l := vmap.Enter(outer, size, vmap.Unsettled)
	defer l.Exit()
	own := slices.Clone(whole)
	for j, x := range whole {
		if choice>>j&1 != 0 {
			own[j] = l.Wrap(x)
		}
	}
	results := f(l, own)
	for i, y := range results {
		if y.Err() != nil {
			return nil, y.Err()
		}
		if results[i] = l.Unwrap(y); results[i] == nil {
			return nil, fmt.Errorf("result %d is not batched", i)
		}
	}
	return results, nil
}
