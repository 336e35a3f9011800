package op_test

import (
	"hash/fnv"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/autograd"
	"github.com/plait-ml/plait/core/coretest"
	"github.com/plait-ml/plait/core/op"
)

// moves returns a tangent for each leaf that requires a gradient, and the leaves without graph.
func (m *maker) moves(seed string) (plain, tangents []*core.Tensor) {
	h := fnv.New64a()
	h.Write([]byte(seed))
	rng := rand.New(rand.NewPCG(h.Sum64(), 2))
	for _, x := range m.leaves {
		plain = append(plain, x.Detach())
		if !x.RequiresGrad() {
			tangents = append(tangents, nil)
			continue
		}
		n := x.Numel()
		if x.DType().IsComplex() {
			n *= 2
		}
		v := make([]float64, n)
		for i := range v {
			v[i] = 2*rng.Float64() - 1
		}
		tangents = append(tangents, place(v, x.DType(), x.Shape(), contiguous))
	}
	return plain, tangents
}

// along returns the change of fn's results as the leaves move along the tangents, by central differences.
func along(t *testing.T, fn func(in []*core.Tensor) []*core.Tensor, plain, tangents []*core.Tensor) (slopes [][]float64) {
	const eps = 1e-6
	at := func(step float64) (out [][]float64) {
		moved := make([]*core.Tensor, len(plain))
		for i, x := range plain {
			if moved[i] = x; tangents[i] != nil {
				moved[i] = op.Add(x, op.Mul(tangents[i], core.Num(step)))
			}
		}
		for _, y := range fn(moved) {
			require.NoError(t, y.Err())
			if out = append(out, nil); y.DType().Differentiable() {
				out[len(out)-1] = elements(t, y)
			}
		}
		return out
	}
	after, before := at(eps), at(-eps)
	for i := range after {
		slope := make([]float64, len(after[i]))
		for j := range slope {
			slope[j] = (after[i][j] - before[i][j]) / (2 * eps)
		}
		slopes = append(slopes, slope)
	}
	return slopes
}

// elements returns the elements as float64, the parts of complex ones.
func elements(t *testing.T, y *core.Tensor) []float64 {
	if y.DType().IsComplex() {
		y = op.ViewAsReal(y)
	}
	return values(t, op.To(op.Contiguous(y), core.Float64))
}

func TestTangentsAgreeWithDifferences(t *testing.T) {
	eachSample(t, func(t *testing.T, r *op.Row, s op.Sample) {
		if r.NoGrad != "" {
			return
		}
		m := newMaker(r.Name+s.Name, core.Float64, contiguous, true)
		args := m.arguments(s)
		fn := func(in []*core.Tensor) []*core.Tensor { return m.apply(r.Call, args, in) }
		plain, tangents := m.moves(r.Name + s.Name)
		outputs, products, err := autograd.JVP(fn, plain, tangents)
		require.NoError(t, err)
		want := along(t, fn, plain, tangents)
		for i, y := range outputs {
			if !y.DType().Differentiable() {
				continue
			}
			got := make([]float64, len(want[i]))
			if products[i] != nil {
				require.Equal(t, y.Shape(), products[i].Shape())
				require.Equal(t, y.DType(), products[i].DType())
				got = elements(t, products[i])
			}
			for j := range got {
				assert.InDelta(t, want[i][j], got[j], 1e-6*loose(s)+1e-5*loose(s)*max(want[i][j], -want[i][j]), "result %d", i)
			}
		}
	})
}

// TestTangentsOfGradientsAgree takes forward mode through backward passes, recorded and not.
func TestTangentsOfGradientsAgree(t *testing.T) {
	coretest.SkipUnderRace(t)
	eachSample(t, func(t *testing.T, r *op.Row, s op.Sample) {
		if r.NoGrad != "" || r.NoDouble != "" {
			return
		}
		for _, o := range []autograd.Options{{AllowUnused: true}, {AllowUnused: true, CreateGraph: true}} {
			m := newMaker(r.Name+s.Name, core.Float64, contiguous, true)
			fn := m.gradientsWith(r, m.arguments(s), o)
			plain, tangents := m.moves(r.Name + s.Name)
			gradients := func(in []*core.Tensor) []*core.Tensor {
				leaves := make([]*core.Tensor, len(in))
				for i, x := range in {
					if leaves[i] = x; tangents[i] != nil {
						leaves[i] = op.ViewAs(x, x).SetRequiresGrad(true)
					}
				}
				return fn(leaves)
			}
			_, products, err := autograd.JVP(gradients, plain, tangents)
			require.NoError(t, err)
			want := along(t, gradients, plain, tangents)
			for i, v := range products {
				got := make([]float64, len(want[i]))
				if v != nil {
					got = elements(t, v)
				}
				for j := range got {
					assert.InDelta(t, want[i][j], got[j], 1e-5*loose(s)+1e-4*loose(s)*max(want[i][j], -want[i][j]), "gradient %d", i)
				}
			}
		}
	})
}
