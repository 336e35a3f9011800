package checkpoint_test

import (
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/autograd"
	"github.com/plait-ml/plait/core/nn"
	"github.com/plait-ml/plait/core/op"
	"github.com/plait-ml/plait/core/optim"
	"github.com/plait-ml/plait/parallel/checkpoint"
	"github.com/plait-ml/plait/parallel/collective"
	"github.com/plait-ml/plait/parallel/ddp"
	"github.com/plait-ml/plait/parallel/fsdp"
	"github.com/plait-ml/plait/parallel/pipeline"
)

// gain is a layer with a 0-d parameter and a buffer.
type gain struct {
	nn.Base
	Scale *core.Tensor
	Shift *core.Tensor `plait:"buffer"`
}

func (g *gain) Forward(x *core.Tensor) *core.Tensor { return op.Add(op.Mul(x, g.Scale), g.Shift) }

func layers(seed uint64) []nn.Layer {
	core.ManualSeed(seed)
	g := &gain{Scale: core.Scalar(float32(1.25)).Keep().SetRequiresGrad(true), Shift: op.Rand(5).Keep()}
	frozen := nn.NewLinear(5, 5, nn.LinearOptions{})
	nn.SetRequiresGrad(frozen, false)
	return []nn.Layer{nn.NewLinear(3, 5, nn.LinearOptions{}), g, nn.NewTanh(), frozen, nn.NewLinear(5, 2, nn.LinearOptions{})}
}

// The lowest rank's buffers are saved; parameters must be equal.
func TestBuffersThatDifferFromRankToRank(t *testing.T) {
	dir := t.TempDir()
	save := func(change func(g *gain)) error {
		return collective.Spawn(2, []string{"cpu:0"}, collective.Options{}, func(r *collective.Rank) error {
			m := nn.NewSequential(layers(1)...)
			if r.Rank == 1 {
				change(m.Layers[1].(*gain))
			}
			return (&checkpoint.Training{Model: m}).Save(dir, r.World)
		})
	}
	require.ErrorContains(t, save(func(g *gain) { core.NoGrad(func() { op.ZeroInPlace(g.Scale) }) }), "hold different values")
	require.NoError(t, save(func(g *gain) { op.ZeroInPlace(g.Shift) }))
	m := nn.NewSequential(layers(2)...)
	require.NoError(t, (&checkpoint.Training{Model: m}).Load(dir, nil))
	want, err := core.Values[float32](nn.NewSequential(layers(1)...).Layers[1].(*gain).Shift)
	require.NoError(t, err)
	got, err := core.Values[float32](m.Layers[1].(*gain).Shift)
	require.NoError(t, err)
	require.Equal(t, want, got)
}

// A trained is a training with a function that makes a step on the whole batch and returns the loss.
type trained struct {
	*checkpoint.Training
	pass  func(x *core.Tensor) (float64, error) // forward and backward
	steps int
	end   func() error
}

func square(y, _ *core.Tensor) *core.Tensor { return op.Mean(op.Mul(y, y), nil, false) }

func (t *trained) train(n int) (losses []float64, err error) {
	for range n {
		core.Tidy(func() {
			t.Optimizer.ZeroGrad()
			x := op.Add(op.Sin(op.Reshape(op.Arange(nil, core.Num(12), nil, op.TensorOptions{}), 4, 3)), core.Num(float64(t.steps)/10))
			var l float64
			if l, err = t.pass(x); err == nil {
				losses = append(losses, l)
				err = errors.Join(t.Optimizer.Step(), t.Schedule.Step())
			}
		})
		if err != nil {
			return nil, err
		}
		t.steps++
	}
	return losses, nil
}

// begin creates an optimiser and a schedule for the parameters of m.
func (t *trained) begin(m nn.Module, d checkpoint.Divided) (err error) {
	t.Training = &checkpoint.Training{Model: m, Divided: d, Random: true, Values: map[string]any{"steps": &t.steps}}
	params := slices.DeleteFunc(nn.Parameters(m), func(p *core.Tensor) bool { return !p.RequiresGrad() })
	if t.Optimizer, err = optim.NewAdamW(params, optim.Hyper{"lr": 0.05}); err != nil {
		return err
	}
	t.Schedule, err = optim.NewStepLR(t.Optimizer, 2, 0.5)
	return err
}

func onOne(forward func(x *core.Tensor) *core.Tensor) func(x *core.Tensor) (float64, error) {
	return func(x *core.Tensor) (float64, error) {
		l := square(forward(x), nil)
		if err := autograd.Backward(l); err != nil {
			return 0, err
		}
		return l.Item()
	}
}

// ways are kinds of parallelism, by name, with their world sizes.
var ways = []struct {
	name  string
	ranks int
	make  func(seed uint64, g *collective.Group) (*trained, error)
}{
	{"one device", 1, func(seed uint64, _ *collective.Group) (*trained, error) {
		m := nn.NewSequential(layers(seed)...)
		t := &trained{pass: onOne(m.Forward), end: func() error { return nil }}
		return t, t.begin(m, nil)
	}},
	{"ddp", 2, func(seed uint64, g *collective.Group) (*trained, error) {
		m := nn.NewSequential(layers(seed)...)
		d, err := ddp.New(m, g, ddp.Options{})
		if err != nil {
			return nil, err
		}
		t := &trained{pass: onOne(d.Forward), end: d.Close}
		return t, t.begin(m, nil)
	}},
	{"fsdp", 4, func(seed uint64, g *collective.Group) (*trained, error) {
		return divided(seed, g, fsdp.ByType(&nn.Linear{}))
	}},
	{"fsdp in one unit", 3, func(seed uint64, g *collective.Group) (*trained, error) { return divided(seed, g, nil) }},
	{"pipeline", 1, func(seed uint64, _ *collective.Group) (*trained, error) {
		p, err := pipeline.NewPipeline(nn.NewSequential(layers(seed)...), []string{"cpu:0", "cpu:1"}, pipeline.Options{Chunks: 2, Loss: square})
		if err != nil {
			return nil, err
		}
		t := &trained{end: func() error { return nil }, pass: func(x *core.Tensor) (float64, error) {
			l, _, err := p.Step(x, x)
			if err != nil {
				return 0, err
			}
			return l.Item()
		}}
		return t, t.begin(p, nil)
	}},
}

func divided(seed uint64, g *collective.Group, policy fsdp.Policy) (*trained, error) {
	m := nn.NewSequential(layers(seed)...)
	f, err := fsdp.New(m, g, policy, fsdp.Options{KeepAfterForward: true})
	if err != nil {
		return nil, err
	}
	t := &trained{pass: onOne(f.Forward), end: f.Close}
	return t, t.begin(m, f)
}

func spawn(n int, fn func(r *collective.Rank) error) error {
	return collective.Spawn(n, []string{"cpu:0"}, collective.Options{Timeout: 2 * time.Minute}, fn)
}

func near(got, want []float64, tol float64) error {
	for i := range want {
		if math.Abs(got[i]-want[i]) > tol {
			return fmt.Errorf("losses %v, want %v", got, want)
		}
	}
	return nil
}

// Case 52: training saved under any kind of parallelism continues under any other; under the same, bit for bit.
func TestCase52TrainingGoesOnInEveryOtherWay(t *testing.T) {
	for _, from := range ways {
		dir := filepath.Join(t.TempDir(), "checkpoint")
		wants := make([][]float64, from.ranks)
		var next float64
		require.NoError(t, spawn(from.ranks, func(r *collective.Rank) error {
			a, err := from.make(1, r.World)
			if err != nil {
				return err
			}
			if _, err := a.train(3); err != nil {
				return err
			}
			if err := a.Save(dir, r.World); err != nil {
				return err
			}
			if r.Rank == 0 {
				next, err = op.Rand(1).Item()
			}
			want, e := a.train(3)
			wants[r.Rank] = want
			return errors.Join(err, e, a.end())
		}), from.name)
		for _, to := range ways {
			err := spawn(to.ranks, func(r *collective.Rank) error {
				b, err := to.make(2, r.World)
				if err != nil {
					return err
				}
				if err := b.Load(dir, r.World); err != nil {
					return err
				}
				if b.steps != 3 || b.Schedule.Epoch() != 3 {
					return fmt.Errorf("step %d, epoch %v of the schedule", b.steps, b.Schedule.Epoch())
				}
				if r.Rank == 0 {
					if v, err := op.Rand(1).Item(); err != nil || v != next {
						return fmt.Errorf("the next random number is %v, want %v (%w)", v, next, err)
					}
				}
				got, err := b.train(3)
				tol := 1e-5
				if to.name == from.name {
					tol = 0
				}
				return errors.Join(err, near(got, wants[0], tol), b.end())
			})
			require.NoError(t, err, "%s to %s", from.name, to.name)
		}
	}
}

// Each parameter group gets back its hyperparameters and the initial learning rate of its schedule.
func TestATrainingThatIsSavedInTheBackground(t *testing.T) {
	dir := t.TempDir()
	a, err := ways[0].make(1, nil)
	require.NoError(t, err)
	_, err = a.train(2)
	require.NoError(t, err)
	pending, err := a.SaveAsync(dir, nil)
	require.NoError(t, err)
	want, err := a.train(2)
	require.NoError(t, err)
	<-pending.Done()
	require.NoError(t, pending.Wait())
	b, err := ways[0].make(3, nil)
	require.NoError(t, err)
	require.NoError(t, b.Load(dir, nil))
	got, err := b.train(2)
	require.NoError(t, err)
	require.Equal(t, want, got)
	require.NoError(t, errors.Join(a.end(), b.end()))
}

func TestGroupsOfAnOptimiser(t *testing.T) {
	dir := t.TempDir()
	make := func(first, second float64) *checkpoint.Training {
		m := nn.NewSequential(nn.NewLinear(2, 3, nn.LinearOptions{}), nn.NewLinear(3, 2, nn.LinearOptions{}))
		o, err := optim.New("sgd", nil, optim.Params{Tensors: nn.Parameters(m.Layers[0]), Hyper: optim.Hyper{"lr": first}},
			optim.Params{Tensors: nn.Parameters(m.Layers[1]), Hyper: optim.Hyper{"lr": second}})
		require.NoError(t, err)
		_, err = optim.NewStepLR(o, 1, 0.5)
		require.NoError(t, err)
		return &checkpoint.Training{Model: m, Optimizer: o}
	}
	a, b := make(0.1, 0.2), make(0.7, 0.8)
	require.NoError(t, a.Save(dir, nil))
	require.NoError(t, b.Load(dir, nil))
	for i, want := range []float64{0.1, 0.2} {
		g := b.Optimizer.StateDict().Groups[i]
		require.Equal(t, want, g.Hyper["lr"])
		require.Equal(t, want, *g.InitialLR)
	}
}

// Ranks with different stages of a model save the whole model together and load their stages from one.
func TestStagesOfAPipeline(t *testing.T) {
	dir := t.TempDir()
	whole, err := ways[0].make(1, nil)
	require.NoError(t, err)
	_, err = whole.train(2)
	require.NoError(t, err)
	require.NoError(t, whole.Save(dir, nil))
	want, err := whole.train(2)
	require.NoError(t, err)
	again := t.TempDir()
	require.NoError(t, spawn(2, func(r *collective.Rank) error {
		m := &struct{ nn.Base }{}
		for i, l := range layers(7) {
			if i/3 == r.Rank {
				m.RegisterModule(fmt.Sprint(i), l)
			}
		}
		part := &trained{}
		if err := part.begin(m, nil); err != nil {
			return err
		}
		return errors.Join(part.Load(dir, r.World), part.Save(again, r.World))
	}))
	back, err := ways[0].make(3, nil)
	require.NoError(t, err)
	require.NoError(t, back.Load(again, nil))
	got, err := back.train(2)
	require.NoError(t, err)
	require.Equal(t, want, got)
}

// Whole tensors of a sharded module are gathered on one rank, and scattered to another sharding.
func TestPiecesOfModules(t *testing.T) {
	require.NoError(t, spawn(3, func(r *collective.Rank) error {
		a, err := divided(1, r.World, nil)
		if err != nil {
			return err
		}
		have, err := checkpoint.Pieces(a.Model, a.Divided)
		if err != nil {
			return err
		}
		whole, err := checkpoint.Gather(have, 0, nil, r.World)
		if err != nil {
			return err
		}
		b, err := divided(2, r.World, fsdp.ByType(&nn.Linear{}))
		if err != nil {
			return err
		}
		want, err := checkpoint.Pieces(b.Model, b.Divided)
		if err != nil {
			return err
		}
		if err := checkpoint.Scatter(whole, want, 0, r.World); err != nil {
			return err
		}
		x, errA := a.train(1)
		y, errB := b.train(1)
		return errors.Join(errA, errB, near(y, x, 0), a.end(), b.end())
	}))
}

func contains(err error, text string) bool { return strings.Contains(err.Error(), text) }

// A mismatch is an error on every rank and changes nothing.
func TestATrainingThatDoesNotFit(t *testing.T) {
	dir := t.TempDir()
	a, err := ways[0].make(1, nil)
	require.NoError(t, err)
	_, err = a.train(2)
	require.NoError(t, err)
	require.NoError(t, a.Save(dir, nil))
	for _, c := range []struct {
		change func(t *trained) error
		want   string
	}{
		{func(t *trained) (err error) {
			t.Optimizer, err = optim.NewSGD(nn.Parameters(t.Model), nil)
			return err
		}, `has the state of an optimiser "adamw", want "sgd"`},
		{func(t *trained) (err error) {
			t.Schedule, err = optim.NewExponentialLR(t.Optimizer, 0.9)
			return err
		}, "the state is of another schedule"},
		{func(t *trained) error {
			t.Values["epoch"] = &t.steps
			return nil
		}, "no values named epoch"},
		{func(t *trained) error {
			t.Values["steps"] = t.steps
			return nil
		}, `value "steps": want a pointer, got a int`},
		{func(t *trained) error {
			t.Values["steps"] = new(string)
			return nil
		}, `value "steps" of`},
		{func(t *trained) error {
			t.Model = nn.NewSequential(append(layers(1), nn.NewLinear(2, 2, nn.LinearOptions{}))...)
			return nil
		}, "of the optimiser is not among the module's"},
	} {
		require.NoError(t, spawn(2, func(r *collective.Rank) error {
			b, err := ways[0].make(5, nil)
			if err != nil {
				return err
			}
			weight := nn.Parameters(b.Model)[0]
			before, err := core.Values[float64](weight)
			if err != nil {
				return err
			}
			if r.Rank == 1 {
				err = c.change(b)
			}
			if err != nil {
				return err
			}
			if err = b.Load(dir, r.World); err == nil || r.Rank == 1 && !contains(err, c.want) || r.Rank == 0 && !contains(err, "rank 1: ") {
				return fmt.Errorf("got %v, want %s", err, c.want)
			}
			after, err := core.Values[float64](weight)
			if err == nil && !slices.Equal(before, after) || b.steps != 0 {
				err = errors.New("the training has changed")
			}
			return err
		}))
	}
}
