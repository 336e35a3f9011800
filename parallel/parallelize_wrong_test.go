package parallel_test

import (
	"fmt"
	"math"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/nn"
	"github.com/plait-ml/plait/core/op"
	"github.com/plait-ml/plait/core/optim"
	"github.com/plait-ml/plait/parallel"
	"github.com/plait-ml/plait/parallel/collective"
	"github.com/plait-ml/plait/parallel/fsdp"
	"github.com/plait-ml/plait/parallel/internal/worldtest"
	"github.com/plait-ml/plait/parallel/mesh"
	"github.com/plait-ml/plait/parallel/tensor/layers"
)

// onMesh runs fn on the ranks of a mesh.
func onMesh(t *testing.T, names []string, sizes []int, fn func(r *collective.Rank, on *mesh.Mesh) error) error {
	t.Helper()
	return worldtest.Spawn(core.Numel(sizes), nil, collective.Options{}, func(r *collective.Rank) error {
		on, err := mesh.New(r.World, sizes, mesh.Options{Names: names})
		if err != nil {
			return err
		}
		return fn(r, on)
	})
}

func TestWrongOptions(t *testing.T) {
	type options = parallel.Options
	for _, c := range []struct {
		names []string
		model func() nn.Layer
		o     options
		want  string
	}{
		{[]string{"x"}, nil, options{}, "the axis 'x' of .* is for nothing; each axis is for one of pp, dp, fsdp, tp"},
		{[]string{"dp"}, nil, options{FSDP: parallel.FullyShard{Axis: "fsdp"}}, "fsdp is given for the axis 'fsdp', which .* lacks; it has 'dp'"},
		{[]string{"dp"}, nil, options{FSDP: parallel.FullyShard{Axis: "dp"}}, "is for dp and fsdp"},
		{nil, nil, options{}, "have no names"},
		{[]string{"tp"}, func() nn.Layer { return nn.NewLinear(2, 2, nn.LinearOptions{}) }, options{}, "no layer has a name that is known to be divided"},
		{[]string{"tp"}, nil, options{TP: parallel.Divide{Plan: map[string]layers.Style{"1.1": layers.Columns{}}, Ready: layers.ReadyOptions{Sequence: true}}}, "for the ready plan, and a plan"},
		{[]string{"tp"}, nil, options{TP: parallel.Divide{Plan: map[string]layers.Style{"1.1": layers.Columns{Pieces: -1}}}}, "1.1: want at least one piece, got -1"},
		{[]string{"tp"}, nil, options{TP: parallel.Divide{Plan: map[string]layers.Style{"q": layers.Rows{}}}}, `the plan names "q"`},
		{[]string{"pp"}, func() nn.Layer { return nn.NewLinear(2, 2, nn.LinearOptions{}) }, options{}, "wants a Sequential"},
		{[]string{"pp"}, nil, options{PP: parallel.Stages{Schedule: "none"}}, `got "none", want one of`},
		{[]string{"pp"}, nil, options{PP: parallel.Stages{MicroBatches: 1}}, "at least as many micro-batches as ranks, got 1 for 2"},
		{[]string{"pp"}, nil, options{PP: parallel.Stages{Sizes: []int{9, 1}}}, "got a split of"},
		{[]string{"pp"}, nil, options{PP: parallel.Stages{Sizes: []int{1, 1, 1}}}, "got sizes of 3 stages for 2 ranks"},
		{[]string{"dp"}, func() nn.Layer { return nil }, options{}, "want a model"},
	} {
		require.NoError(t, onMesh(t, c.names, []int{2}, func(_ *collective.Rank, on *mesh.Mesh) error {
			model := nn.Layer(made(2, false))
			if c.model != nil {
				model = c.model()
			}
			_, err := parallel.Parallelize(model, on, c.o)
			if !assert.Error(t, err, c.want) {
				return nil
			}
			assert.Regexp(t, c.want, err.Error())
			return nil
		}))
	}
	_, err := parallel.Parallelize(made(2, false), nil, options{})
	assert.ErrorContains(t, err, "want a mesh, got none")
	require.NoError(t, onMesh(t, []string{"fsdp", "dp"}, []int{2, 2}, func(_ *collective.Rank, on *mesh.Mesh) error {
		_, err := parallel.Parallelize(made(2, false), on, options{})
		assert.ErrorContains(t, err, "the axis 'dp' must come before 'fsdp'")
		return nil
	}))
}

// TestRanksDisagree has one rank with another model, other options, or arguments that are wrong: every rank must get an error.
func TestRanksDisagree(t *testing.T) {
	for what, change := range map[string]func(m *nn.Sequential, o *parallel.Options){
		"the ranks' model differ":                                 func(m *nn.Sequential, _ *parallel.Options) { m.Layers[3] = nn.NewTanh() },
		"the ranks' stages differ":                                func(_ *nn.Sequential, o *parallel.Options) { o.PP.MicroBatches = 5 },
		"the ranks' sharding differ":                              func(_ *nn.Sequential, o *parallel.Options) { o.FSDP.Options.KeepAfterForward = true },
		"the ranks' plan differ":                                  func(_ *nn.Sequential, o *parallel.Options) { delete(o.TP.Plan, "0") },
		"rank 5 cannot begin: schedule: got \"none\"|want one of": func(_ *nn.Sequential, o *parallel.Options) { o.PP.Schedule = "none" },
	} {
		require.NoError(t, onMesh(t, []string{"pp", "fsdp", "tp"}, []int{2, 2, 2}, func(r *collective.Rank, on *mesh.Mesh) error {
			m := made(2, false)
			o := parallel.Options{TP: parallel.Divide{Plan: plan(m)}}
			if r.Rank == 5 {
				change(m, &o)
			}
			_, err := parallel.Parallelize(m, on, o)
			if assert.Error(t, err, what) {
				assert.Regexp(t, what, err.Error())
			}
			return nil
		}))
	}
}

// TestAModelIsLaidOnce also says what an elsewhere, a second use and a step without a loss do.
func TestAModelIsLaidOnce(t *testing.T) {
	require.NoError(t, onMesh(t, []string{"pp"}, []int{2}, func(r *collective.Rank, on *mesh.Mesh) error {
		m := made(2, false)
		laid, err := parallel.Parallelize(m, on, parallel.Options{})
		if err != nil {
			return err
		}
		_, err = parallel.Parallelize(laid, on, parallel.Options{})
		assert.ErrorContains(t, err, "the model lies on")
		x, y := batch(0)
		_, err = laid.Step(x, y)
		assert.ErrorContains(t, err, "there is no loss")
		assert.ErrorContains(t, nn.Call(m, op.ToDevice(x, r.Device)).Err(), "of the pipeline; call the model")
		assert.Error(t, laid.Forward(nil).Err())
		return laid.Close()
	}))
}

// TestWrongBatches has ranks of a pipeline with different or unusable batches, after which the next step succeeds.
func TestWrongBatches(t *testing.T) {
	for _, names := range [][]string{{"pp", "tp"}, {"pp", "fsdp"}, {"pp", "dp"}} {
		require.NoError(t, onMesh(t, names, []int{2, 2}, func(r *collective.Rank, on *mesh.Mesh) error {
			m := made(2, true)
			laid, err := parallel.Parallelize(m, on, parallel.Options{Loss: lossOf, TP: parallel.Divide{Plan: plan(m)}})
			if err != nil {
				return err
			}
			x, y := batch(0)
			x, y = op.ToDevice(x, r.Device), op.ToDevice(y, r.Device)
			for _, wrong := range []func() (a, b *core.Tensor){
				func() (a, b *core.Tensor) { return op.Narrow(x, 0, 0, rows-1), op.Narrow(y, 0, 0, rows-1) },
				func() (a, b *core.Tensor) { return x, op.Narrow(y, 0, 0, rows-1) },
				func() (a, b *core.Tensor) { return op.Narrow(x, 0, 0, 0), op.Narrow(y, 0, 0, 0) },
				func() (a, b *core.Tensor) { return nil, y },
			} {
				a, b := x, y
				if r.Rank == 3 {
					a, b = wrong()
				}
				_, err := laid.Step(a, b)
				assert.Error(t, err)
				_, err = laid.Step(x, y)
				if err != nil {
					return fmt.Errorf("%v: %w", names, err)
				}
			}
			return laid.Close()
		}))
	}
}

// TestALossThatFails has a loss that panics on one rank: the step fails on all, and the next ones succeed.
func TestALossThatFails(t *testing.T) {
	for _, names := range [][]string{{"pp", "fsdp"}, {"fsdp", "tp"}, {"pp", "tp"}, {"dp", "tp"}, {"pp", "dp"}} {
		var failing atomic.Bool
		require.NoError(t, onMesh(t, names, []int{2, 2}, func(r *collective.Rank, on *mesh.Mesh) error {
			m := made(2, false)
			loss := func(scores, target *core.Tensor) *core.Tensor {
				if failing.Load() && r.Rank == 3 {
					panic("no loss today")
				}
				return lossOf(scores, target)
			}
			laid, err := parallel.Parallelize(m, on, parallel.Options{Loss: loss, TP: parallel.Divide{Plan: plan(m)}})
			if err != nil {
				return err
			}
			x, y := batch(0)
			x, y = op.ToDevice(x, r.Device), op.ToDevice(y, r.Device)
			for i := range 4 {
				if err := r.World.Barrier(); err != nil {
					return err
				}
				failing.Store(i%2 == 0)
				if err := r.World.Barrier(); err != nil {
					return err
				}
				if _, err := laid.Step(x, y); i%2 == 0 {
					if assert.Error(t, err, names) {
						assert.Contains(t, err.Error(), "no loss today", names)
					}
				} else if err != nil {
					return fmt.Errorf("%v: %w", names, err)
				}
				nn.ZeroGrad(laid)
			}
			return laid.Close()
		}))
	}
}

// TestScaledStepsAreLeftOutOnAllRanks has a loss that is not finite for one micro-batch.
func TestScaledStepsAreLeftOutOnAllRanks(t *testing.T) {
	for _, names := range [][]string{{"pp", "fsdp"}, {"dp", "tp"}, {"pp", "dp"}} {
		require.NoError(t, onMesh(t, names, []int{2, 2}, func(r *collective.Rank, on *mesh.Mesh) error {
			m, factor := made(2, false), 1.0
			laid, err := parallel.Parallelize(m, on, parallel.Options{
				Loss: func(scores, target *core.Tensor) *core.Tensor {
					return op.Mul(lossOf(scores, target), core.Num(factor))
				},
				TP: parallel.Divide{Plan: plan(m)}, FSDP: parallel.FullyShard{Units: fsdp.BySize(1)},
			})
			if err != nil {
				return err
			}
			s := optim.NewGradScaler()
			o, err := optim.NewSGD(nn.Parameters(laid), optim.Hyper{"lr": 0.1})
			if err != nil {
				return err
			}
			x, y := batch(0)
			x, y = op.ToDevice(x, r.Device), op.ToDevice(y, r.Device)
			for i, f := range []float64{1, math.Inf(1), 1} {
				factor = f
				o.ZeroGrad()
				if _, err := laid.StepScaled(s, x, y); err != nil {
					return err
				}
				if err := laid.Unscale(s, o); err != nil {
					return err
				}
				finite, err := s.Step(o)
				if err != nil {
					return err
				}
				assert.Equal(t, i != 1, finite, "%v, rank %d, step %d", names, r.Rank, i)
				if err := s.Update(); err != nil {
					return err
				}
			}
			assert.Equal(t, 32768.0, s.Scale)
			s.Release()
			return laid.Close()
		}))
	}
}

// TestNoSyncAccumulates compares two passes, of which the first reduces nothing, with one of the joined batch.
func TestNoSyncAccumulates(t *testing.T) {
	for _, names := range [][]string{{"pp", "dp"}, {"dp", "fsdp"}, {"pp", "fsdp"}} {
		require.NoError(t, onMesh(t, names, []int{2, 2}, func(r *collective.Rank, on *mesh.Mesh) error {
			x, y := batch(0)
			x, y = op.ToDevice(x, r.Device), op.ToDevice(y, r.Device)
			var norms []float64
			for _, sync := range []bool{true, false} {
				laid, err := parallel.Parallelize(made(2, false), on, parallel.Options{Loss: lossOf})
				if err != nil {
					return err
				}
				n, at := rows/laid.DataParallelSize(), laid.DataParallelRank()
				part := func(t *core.Tensor, i int) *core.Tensor {
					return op.Narrow(t, 0, n*((at+i)%laid.DataParallelSize()), n)
				}
				first := func() error { _, err := laid.Step(part(x, 0), part(y, 0)); return err }
				if sync {
					err = first()
				} else {
					err = laid.NoSync(first)
				}
				if err != nil {
					return err
				}
				if _, err := laid.Step(part(x, 1), part(y, 1)); err != nil {
					return err
				}
				norm, err := laid.ClipGradNorm(1, optim.ClipOptions{}).Item()
				if err != nil {
					return err
				}
				norms = append(norms, norm)
				if err := laid.Close(); err != nil {
					return err
				}
			}
			assert.InEpsilon(t, norms[0], norms[1], 1e-5, "%v", names)
			return nil
		}))
	}
}
