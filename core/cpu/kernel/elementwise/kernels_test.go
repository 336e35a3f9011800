package elementwise_test

import (
	"hash/fnv"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/cpu/kernel/elementwise"
	"github.com/plait-ml/plait/core/cpu/kernel/internal/rawtensor"
	"github.com/plait-ml/plait/core/op"
	"github.com/plait-ml/plait/core/op/expr"
)

const elements = 299 // which fill no whole number of vectors

// TestKernelsAgreeWithTheInterpreter compares every generated kernel, in each of its types, with the interpreter of
// package expr.
func TestKernelsAgreeWithTheInterpreter(t *testing.T) {
	seen := 0
	for _, r := range op.Rows() {
		for _, e := range r.Elementwise {
			for _, k := range e.Kernels() {
				for _, ct := range k.Types() {
					seen++
					t.Run(k.Instance(ct), func(t *testing.T) {
						compare(t, k, ct, false, false)
						if k.Pairs {
							compare(t, k, ct, true, false)
						}
						if slices.ContainsFunc(k.In, func(p expr.Param) bool { return p.Scalar }) {
							compare(t, k, ct, false, true)
						}
					})
				}
			}
		}
	}
	require.Greater(t, seen, 500)
}

// compare runs a kernel. With pairs, every two numbers in turn lie in memory as the parts of complex ones do. With scalars, the operands
// that are often numbers are that.
func compare(t *testing.T, k *expr.Kernel, ct expr.Type, pairs, scalars bool) {
	h := fnv.New64a()
	h.Write([]byte(k.Instance(ct)))
	rng := rand.New(rand.NewPCG(h.Sum64(), 0))
	c := &core.Call{Op: k.Name}
	env := map[string]float64{}
	for i, name := range k.Attrs {
		env[name] = 0.25 + 0.5*float64(i)
		if ct == expr.I64 {
			env[name] = float64(3 + i)
			c.Ints = append(c.Ints, int64(env[name]))
		}
	}
	if ct != expr.I64 {
		for _, name := range k.Attrs {
			c.Floats = append(c.Floats, env[name])
		}
	}
	var ins, outs []*rawtensor.Tensor
	var first *rawtensor.Tensor
	empty := func(kind expr.Kind) *rawtensor.Tensor {
		if !pairs || kind == expr.Logic {
			return rawtensor.New(t, dtype(ct, kind), elements)
		}
		if x := first; x != nil {
			first = nil
			return x.Slice(0, 1, 2*elements, 2)
		}
		first = rawtensor.New(t, dtype(ct, kind), 2*elements)
		return first.Slice(0, 0, 2*elements, 2)
	}
	for _, p := range k.In {
		x := empty(p.Kind)
		number := element(rng, ct, p.Kind, elements)
		x.Fill(func(i []int) float64 {
			if scalars && p.Scalar {
				return number
			}
			return element(rng, ct, p.Kind, i[0])
		})
		ins = append(ins, x)
		o := operand(x)
		if scalars && p.Scalar {
			o = core.Operand{IsNumber: true, Number: core.Number{Float: x.Value(0), Int: int64(number)}}
		}
		c.Ins = append(c.Ins, o)
	}
	for _, e := range k.Program.Results {
		if len(k.Program.Results) == 1 {
			pairs = false
		}
		y := empty(e.Kind())
		outs = append(outs, y)
		c.Outs = append(c.Outs, operand(y))
	}
	err := elementwise.RunKernel(t, nil, k.Instance(ct), c)
	if ct != expr.I64 {
		require.NoError(t, err)
	}
	for i := range elements {
		for j, p := range k.In {
			env[p.Name] = ins[j].Value(i)
		}
		want := evaluate(t, k.Program, ct, env)
		for j, y := range outs {
			got := y.Value(i)
			require.True(t, agree(ct, want[j], got), "output %d is %v, want %v, at %v", j, got, want[j], env)
		}
	}
}

func evaluate(t *testing.T, p *expr.Program, ct expr.Type, env map[string]float64) []float64 {
	t.Helper()
	if ct.Float() {
		v, err := p.EvalFloat(env)
		require.NoError(t, err)
		return v
	}
	ints := map[string]int64{}
	for name, v := range env {
		ints[name] = int64(v)
	}
	v, err := p.EvalInt(ints)
	require.NoError(t, err)
	out := make([]float64, len(v))
	for i := range v {
		out[i] = float64(v[i])
	}
	return out
}

func agree(ct expr.Type, want, got float64) bool {
	tolerance := 0.0
	switch ct {
	case expr.F32:
		tolerance = 1e-4
		want = float64(float32(want))
	case expr.F64:
		tolerance = 1e-10
	}
	if math.IsNaN(want) || math.IsInf(want, 0) || tolerance == 0 {
		return want == got || math.IsNaN(want) && math.IsNaN(got)
	}
	return math.Abs(want-got) <= tolerance*(1+math.Abs(want))
}

// element returns a random number of any magnitude. For float64 it also returns infinities and NaN, which the
// interpreter handles in the same way.
func element(rng *rand.Rand, ct expr.Type, k expr.Kind, i int) float64 {
	special := []float64{0, 1, -1, 0.5, math.Inf(1), math.Inf(-1), math.NaN(), 2, -2, 1e-3}
	switch {
	case k == expr.Logic:
		return float64(rng.IntN(2))
	case ct == expr.I64:
		return float64(rng.IntN(41) - 20)
	case ct == expr.F64 && i < 100:
		return special[rng.IntN(len(special))]
	case i%2 == 0:
		return 0.02 + 0.96*rng.Float64()
	}
	return 8*rng.Float64() - 4
}

func dtype(ct expr.Type, k expr.Kind) int {
	if k == expr.Logic {
		return rawtensor.Bool
	}
	return map[expr.Type]int{expr.F32: rawtensor.Float32, expr.F64: rawtensor.Float64, expr.I64: rawtensor.Int64}[ct]
}

func operand(t *rawtensor.Tensor) core.Operand {
	return core.Operand{Memory: core.Memory{Ptr: t.Ptr}, DType: core.DType(t.DType), Shape: t.Shape, Strides: t.Strides}
}
