package gpu_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/autograd"
	"github.com/plait-ml/plait/core/coretest"
	"github.com/plait-ml/plait/core/op"
	"github.com/plait-ml/plait/core/optim"
	"github.com/plait-ml/plait/core/replay"
	"github.com/plait-ml/plait/gpu"
)

// replayed trains a model with dropout for some steps, with or without replays, and returns losses, norms of gradients and parameters.
func replayed(t *testing.T, d core.Device, half bool, steps int, s *replay.Step) (seen [][]byte) {
	t.Helper()
	core.Tidy(func() {
		core.ManualSeed(3)
		g, err := newGPT(50, 24, 32, 2, 4, d)
		require.NoError(t, err)
		g.dropout = 0.2
		schedule, err := optim.NewLambdaLR(g.optimizer, func(epoch int) float64 { return 1 / float64(1+epoch) })
		require.NoError(t, err)
		places := op.ToDevice(op.Arange(nil, core.IntNum(24), nil, op.TensorOptions{}), d)
		step := func(in []*core.Tensor) (out []*core.Tensor, err error) {
			out = core.RunScope(func() []*core.Tensor {
				var loss *core.Tensor
				forward := func() { loss = g.loss(in[0], places, in[1]) }
				g.optimizer.ZeroGrad()
				if half {
					err = core.Autocast("gpu", core.BFloat16, forward)
				} else {
					forward()
				}
				if err == nil {
					err = autograd.Backward(loss)
				}
				norm := optim.ClipGradNorm(g.p, 0.5, optim.ClipOptions{})
				if err == nil {
					err = g.optimizer.Step()
				}
				return []*core.Tensor{loss.Detach(), norm}
			})
			return out, err
		}
		var results []*core.Tensor
		for n := range steps {
			codes := make([]int64, 2*25)
			for i := range codes {
				codes[i] = int64((i*i + n) % 47)
			}
			all := op.ToDevice(core.FromSlice(codes, 2, 25), d)
			in := []*core.Tensor{op.Contiguous(op.Slice(all, 1, 0, 24, 1)), op.Contiguous(op.Slice(all, 1, 1, 25, 1))}
			var out []*core.Tensor
			if s == nil {
				out, err = step(in)
			} else {
				out, err = s.Run("", in, step)
			}
			require.NoError(t, err)
			require.NoError(t, schedule.Step())
			results = append(results, out...)
		}
		for _, x := range append(results, g.p...) {
			b, err := x.Bytes()
			require.NoError(t, err)
			seen = append(seen, b)
		}
		for _, p := range optimState(g.optimizer) {
			require.Equal(t, float64(steps), p.Step)
		}
	})
	return seen
}

func optimState(o *optim.Optimizer) map[int]optim.ParamState { return o.StateDict().Params }

// TestReplaysEqualEager compares replayed steps with the same steps in full, bit for bit: with the calls launched one by one, and with what
// is encoded of them kept in graphs.
func TestReplaysEqualEager(t *testing.T) {
	d := device(t)
	opened, err := core.OpenDevice("graphgpu")
	require.NoError(t, err)
	graphs := opened.(*gpu.Device)
	for _, half := range []bool{true, false}[:coretest.Rounds(2)] {
		const steps = 8
		for _, on := range []*gpu.Device{d, graphs} {
			want := replayed(t, on, half, steps, nil) // the devices may have different drivers, which round differently
			s := &replay.Step{Tell: func(reason error) { t.Error(reason) }}
			require.Equal(t, want, replayed(t, on, half, steps, s))
			s.Close()
			require.NoError(t, on.Synchronize())
		}
	}
	require.NoError(t, graphs.GraphError())
	require.Greater(t, gpu.KeptGraphs(graphs), 20)
}

// TestFaultsOfReplays has replays of a kept call read what a call with a bad index should have written.
func TestFaultsOfReplays(t *testing.T) {
	device(t)
	d, err := core.OpenDevice("graphgpu")
	require.NoError(t, err)
	s := &replay.Step{Tell: func(reason error) { t.Error(reason) }}
	defer s.Close()
	core.Tidy(func() {
		table := op.ToDevice(core.FromSlice([]float32{1, 2, 3}, 3, 1), d)
		step := func(in []*core.Tensor) ([]*core.Tensor, error) {
			y := op.Embedding(in[0], table, op.EmbeddingOptions{})
			return []*core.Tensor{op.Sum(op.Exp(op.Mul(op.MatMul(y, y), core.Num(0.5))), nil, false), op.Neg(table)}, nil
		}
		for n := range 9 {
			i := int64(n % 3)
			if n == 6 {
				i = 7
			}
			out, err := s.Run("", []*core.Tensor{op.ToDevice(core.FromSlice([]int64{i}, 1), d)}, step)
			require.NoError(t, err)
			_, err = out[0].Item()
			if n == 6 {
				require.ErrorContains(t, err, "index")
			} else {
				require.NoError(t, err)
			}
			v, err := core.Values[float64](out[1])
			require.NoError(t, err, "it does not depend on the index")
			require.Equal(t, []float64{-1, -2, -3}, v)
		}
	})
}

// TestGraphsOnAFakeDriver counts graphs, and loses and refuses them.
func TestGraphsOnAFakeDriver(t *testing.T) {
	opened, err := core.OpenDevice("fakegpu:2")
	require.NoError(t, err)
	d := opened.(*gpu.Device)
	s := &replay.Step{Tell: func(reason error) { t.Error(reason) }}
	before := gpu.Graphs(d)
	replayed(t, d, true, 8, s)
	require.NoError(t, d.GraphError())
	require.Greater(t, gpu.Graphs(d), before)
	used := core.MemoryUsage(d).Current
	s.Close()
	require.LessOrEqual(t, core.MemoryUsage(d).Current, used)

	gpu.RefuseGraphs(d, true)
	before = gpu.Graphs(d)
	s = &replay.Step{}
	replayed(t, d, true, 8, s)
	require.ErrorContains(t, d.GraphError(), "no graphs today")
	require.Equal(t, before, gpu.Graphs(d))
	s.Close()
	gpu.RefuseGraphs(d, false)
}
