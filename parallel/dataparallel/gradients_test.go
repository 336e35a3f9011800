package dataparallel_test

import (
	"math"
	"testing"
	"time"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/autograd"
	"github.com/plait-ml/plait/core/nn"
	"github.com/plait-ml/plait/core/op"
	"github.com/plait-ml/plait/parallel/dataparallel"
	"github.com/stretchr/testify/require"
)

// ways has weights of one shape. The first two are added, so they share one gradient; only the first device uses the last.
type ways struct {
	nn.Base
	A, B, First *core.Tensor
	hook        func()
}

func (w *ways) Forward(x *core.Tensor) *core.Tensor {
	y := op.Mul(x, op.Add(w.A, w.B))
	if x.Device().Index() > 0 {
		return y
	}
	w.First.TensorHooks().Add(core.Hook{Fn: func(*core.Tensor) *core.Tensor { w.hook(); return nil }})
	return op.Add(y, op.Mul(x, w.First))
}

// Case 8: gradients that share memory are summed separately. An unused parameter counts as zeros on its device, and the zeros are written
// before the sum reads them: the device is slow, and its memory holds other values.
func TestCase08SharedAndMissingGradients(t *testing.T) {
	const n = 5000
	weight := func() *core.Tensor { return op.Zeros(n).Keep().SetRequiresGrad(true) }
	m := &ways{A: weight(), B: weight(), First: weight()}
	d := parallelOn(t, m, devices[:2], dataparallel.Options{})
	x := op.Cat([]*core.Tensor{op.Full([]int{1, n}, core.Num(1), op.TensorOptions{}), op.Full([]int{1, n}, core.Num(10), op.TensorOptions{})}, 0)
	for range 3 {
		nn.ZeroGrad(m)
		m.hook = func() {
			one := device(t, 1)
			f := core.Float32
			o := op.TensorOptions{DType: &f, Device: one}
			old := op.Full([]int{n}, core.Num(math.NaN()), o)
			sleep(old, 20*time.Millisecond)
			old.Release()
		}
		require.NoError(t, autograd.Backward(op.Sum(d.Forward(x), nil, false)))
		for name, want := range map[string]float64{"a": 11, "b": 11, "first": 1} {
			for _, p := range nn.NamedParameters(m) {
				if p.Name == name {
					v := values(t, p.Tensor.Grad())
					require.Equal(t, want, v[0], name)
					require.Equal(t, want, v[n-1], name)
				}
			}
		}
	}
	d.Release()
}

// Gradients with create_graph have the same bits as without: both sum the devices in one order.
func TestSumsWithAGraph(t *testing.T) {
	for _, graph := range []bool{false, true} {
		w := op.Zeros(1).Keep().SetRequiresGrad(true)
		r, err := dataparallel.NewReplicas([]*core.Tensor{w}, nil, []core.Device{device(t, 0), device(t, 1), device(t, 2), device(t, 3)})
		require.NoError(t, err)
		copies, err := r.Replicate(4)
		require.NoError(t, err)
		var parts []*core.Tensor
		for k, g := range []float64{1, 1e8, -1e8, 1} { // in float32, 1e8 + 1 is 1e8
			parts = append(parts, op.Mul(copies[k][0], core.Num(g)))
		}
		y := op.Sum(dataparallel.Gather(parts, device(t, 0), 0), nil, false)
		require.NoError(t, autograd.BackwardWith([]*core.Tensor{y}, nil, autograd.Options{CreateGraph: graph}))
		require.Equal(t, 2.0, values(t, w.Grad())[0], "graph %v", graph)
		r.Release()
	}
}
