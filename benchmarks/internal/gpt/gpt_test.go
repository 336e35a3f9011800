package gpt

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/autograd"
	_ "github.com/plait-ml/plait/core/cpu"
	"github.com/plait-ml/plait/core/nn"
)

// TestModulesAreTheModel has the same loss and gradients of the functions and of the modules.
func TestModulesAreTheModel(t *testing.T) {
	s := Shapes["tiny"]
	cpu, err := core.OpenDevice("cpu")
	require.NoError(t, err)
	tokens, targets := s.Text(0, cpu)
	run := func(loss func(g *GPT) *core.Tensor) (float64, [][]float32) {
		g, err := New(s, cpu)
		require.NoError(t, err)
		l := loss(g)
		require.NoError(t, autograd.Backward(l))
		v, err := l.Item()
		require.NoError(t, err)
		var grads [][]float32
		for _, p := range g.Params {
			require.NotNil(t, p.Tensor.Grad(), p.Name)
			values, err := core.Values[float32](p.Tensor.Grad())
			require.NoError(t, err)
			grads = append(grads, values)
		}
		return v, grads
	}
	var parts []int
	want, wantGrads := run(func(g *GPT) *core.Tensor {
		g.Around = func(part int, x *core.Tensor, run func(x *core.Tensor) *core.Tensor) *core.Tensor {
			parts = append(parts, part)
			return run(x)
		}
		return g.Loss(g.Tensors(), tokens, targets)
	})
	require.Equal(t, []int{0, 1, 2, 3, 4}, parts)
	got, gotGrads := run(func(g *GPT) *core.Tensor {
		model, costs := g.Modules()
		require.Len(t, costs, s.Layers+2)
		require.Len(t, nn.Parameters(model), len(g.Params), "the table of tokens is one")
		return s.Score(model.Forward(tokens), targets)
	})
	require.Equal(t, want, got)
	require.Equal(t, wantGrads, gotGrads)
	require.InDelta(t, 4.56, want, 0.1) // the logarithm of 96 kinds
}

// TestParts has every parameter in one part.
func TestParts(t *testing.T) {
	cpu, err := core.OpenDevice("cpu")
	require.NoError(t, err)
	g, err := New(Shapes["tiny"], cpu)
	require.NoError(t, err)
	parts, seen := g.Parts(), map[string]bool{}
	require.Len(t, parts, 1+g.Layers)
	require.Equal(t, "norm.bias", parts[0][3].Name)
	require.Equal(t, "layers.3.mlp.out.bias", parts[4][11].Name)
	for _, part := range parts {
		for _, p := range part {
			require.False(t, seen[p.Name], p.Name)
			seen[p.Name] = true
		}
	}
	require.Len(t, seen, len(g.Params))
}
