package graph_test

import (
	"encoding/json"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core"
	_ "github.com/plait-ml/plait/core/cpu"
	"github.com/plait-ml/plait/core/graph"
	"github.com/plait-ml/plait/core/op"
)

// record returns the graph of fn as text, a line per node, and what fn returned.
func record(t *testing.T, fn func(g *graph.Graph) *core.Tensor) (string, *core.Tensor, error) {
	t.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	g, err := graph.Begin()
	require.NoError(t, err)
	defer g.End()
	out := fn(g)
	if out.Err() != nil {
		return "", out, out.Err()
	}
	last, err := g.ValueOf(out)
	require.NoError(t, err)
	var b strings.Builder
	for _, n := range g.Nodes {
		fmt.Fprintf(&b, "%v = %s", n.Outs, n.Op)
		for _, a := range n.Args {
			v, err := json.Marshal(a.Value)
			require.NoError(t, err)
			fmt.Fprintf(&b, " %s=%s", a.Name, v)
		}
		b.WriteString("\n")
	}
	fmt.Fprintf(&b, "return %d", last)
	return b.String(), out, nil
}

func numbers(shape ...int) *core.Tensor {
	return op.Reshape(op.Arange(nil, core.Num(float64(core.Numel(shape))), nil, op.TensorOptions{}), shape...)
}

func TestNodesHaveWhatOperationsTook(t *testing.T) {
	x := numbers(2, 3)
	got, _, err := record(t, func(g *graph.Graph) *core.Tensor {
		y := op.LeakyRelu(op.Mul(g.Input(x), core.Num(2)), 0.1)
		return op.Cat([]*core.Tensor{y, op.ZerosWith([]int{1, 3}, op.TensorOptions{})}, 0)
	})
	require.NoError(t, err)
	require.Equal(t, `[1] = mul input={"id":0} other={"dtype":"float32","number":2}
[2] = leaky_relu input={"id":1} slope=0.1
[3] = zeros size=[1,3] dtype=null device=null requires_grad=false
[4] = cat tensors=[{"id":2},{"id":3}] dim=0
return 4`, got)
}

func TestOperationInPlaceChangesWhatSharesMemory(t *testing.T) {
	x := numbers(2, 3)
	got, y, err := record(t, func(g *graph.Graph) *core.Tensor {
		a := op.Clone(g.Input(x))
		row := op.Select(a, 0, 1)
		part := op.Slice(row, 0, 1, 3, 1)
		op.AddInPlace(part, core.Num(5))
		return op.Sum(row, nil, false)
	})
	require.NoError(t, err)
	require.Equal(t, `[1] = clone input={"id":0}
[2] = select input={"id":1} dim=0 index=1
[3] = slice input={"id":2} dim=0 start=1 end=3 step=1
[4] = add_ input={"id":3} other={"dtype":"float32","number":5}
[5] = select input={"id":1} dim=0 index=1
[6] = slice input={"id":5} dim=0 start=1 end=3 step=1
[7] = slice_scatter input={"id":5} src={"id":4} dim=0 start=1 end=3 step=1
[8] = select_scatter input={"id":1} src={"id":7} dim=0 index=1
[9] = select input={"id":8} dim=0 index=1
[10] = sum input={"id":9} dim=null keepdim=false dtype=null
return 10`, got)
	sum, err := y.Parts().Local().Item()
	require.NoError(t, err)
	require.Equal(t, 3.0+4+5+10, sum)
}

func TestWhatCannotBeRecordedIsRefused(t *testing.T) {
	x, mean, variance := numbers(2, 3), numbers(3), numbers(3)
	for _, c := range []struct {
		want string
		fn   func(g *graph.Graph) *core.Tensor
	}{
		{"made outside of what is recorded", func(g *graph.Graph) *core.Tensor {
			return op.AddInPlace(op.To(x, core.Float64), g.Input(x))
		}},
		{"it changes a parameter", func(g *graph.Graph) *core.Tensor { return op.AddInPlace(g.Parameter(x), core.Num(1)) }},
		{"it changes float32[3]", func(g *graph.Graph) *core.Tensor {
			return op.BatchNorm(g.Input(x), g.Input(mean), g.Input(variance), nil, nil, true, 0.1, 1e-5)
		}},
		{"shares memory with its input", func(g *graph.Graph) *core.Tensor {
			return op.AddInPlace(op.AsStrided(op.Clone(g.Input(x)), []int{2}, []int{2}, 0), core.Num(1))
		}},
	} {
		_, _, err := record(t, c.fn)
		require.ErrorContains(t, err, c.want)
	}
}
