package fsdp_test

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/autograd"
	"github.com/plait-ml/plait/core/coretest"
	"github.com/plait-ml/plait/core/nn"
	"github.com/plait-ml/plait/core/op"
	"github.com/plait-ml/plait/core/optim"
	"github.com/plait-ml/plait/parallel/collective"
	"github.com/plait-ml/plait/parallel/fsdp"
	"github.com/stretchr/testify/require"
)

// tied is a model that uses one parameter in two units and another twice in one, has frozen ones, and a buffer.
type tied struct {
	nn.Base
	Embed *nn.Linear
	First *nn.Sequential
	Last  *nn.Sequential
	Norm  *nn.BatchNorm
}

func newTied() *tied {
	core.ManualSeed(5)
	m := &tied{Embed: nn.NewLinear(width, 7, nn.LinearOptions{})}
	shared := nn.NewLinear(7, 7, nn.LinearOptions{})
	low := nn.NewLinear(7, 7, nn.LinearOptions{NoBias: true})
	m.First = nn.NewSequential(shared, nn.NewTanh(), low, nn.NewTanh(), low)
	other := nn.NewLinear(7, 7, nn.LinearOptions{})
	other.Weight = shared.Weight
	frozen := nn.NewLinear(7, 3, nn.LinearOptions{})
	nn.SetRequiresGrad(frozen, false)
	m.Last = nn.NewSequential(other, nn.NewTanh(), frozen, nn.NewLinear(3, 2, nn.LinearOptions{}))
	m.Norm = nn.NewBatchNorm1d(7, nn.BatchNormOptions{})
	nn.Eval(m.Norm)
	return m
}

func (m *tied) Forward(x *core.Tensor) *core.Tensor {
	x = nn.Call(m.First, nn.Call(m.Norm, nn.Call(m.Embed, x)))
	return nn.Call(m.Last, nn.Call(m.First, x)) // a unit used twice
}

// Case 30: frozen, shared and ignored parameters, units in units and used twice, buffers.
func TestCase30AnyModel(t *testing.T) {
	const world, steps = 3, 3
	var want []float64
	in64(t, func() {
		var err error
		want, err = alone(newTied(), "adam", steps, 2*world)
		require.NoError(t, err)
	})
	for _, o := range []fsdp.Options{{}, {KeepAfterForward: true}, {NoForwardPrefetch: true, BackwardPrefetch: fsdp.PrefetchNever}, {Slots: 3}} {
		spawn(t, world, func(r *collective.Rank) error {
			m := newTied()
			mean, err := values([]*core.Tensor{m.Norm.RunningMean})
			if err != nil {
				return err
			}
			f, err := fsdp.New(m, r.World, fsdp.ByType(&nn.Sequential{}, &nn.Linear{}), o)
			if err != nil {
				return err
			}
			opt, err := optimisers["adam"](nn.Parameters(m))
			if err != nil {
				return err
			}
			for s := range steps {
				x, y := batch(s, r.Rank*2, (r.Rank+1)*2)
				if _, err := step(f.Forward, opt, x, y); err != nil {
					return err
				}
			}
			got, err := gathered(f)
			if err != nil {
				return err
			}
			after, err := values([]*core.Tensor{m.Norm.RunningMean})
			return errors.Join(err, near("parameters", got, want, 1e-9), equal("buffer", after, mean), f.Close())
		})
	}
}

// Ignored modules keep their parameters, whose gradients are the rank's own.
func TestCase30Ignored(t *testing.T) {
	spawn(t, 2, func(r *collective.Rank) error {
		m := model()
		last := m.Layers[3].(*nn.Linear)
		f, err := fsdp.New(m, r.World, blocks, fsdp.Options{}, last)
		if err != nil {
			return err
		}
		if got := last.Weight.Shape(); got[0] != 2 {
			return fmt.Errorf("the ignored weight has shape %v", got)
		}
		x, y := batch(0, r.Rank, r.Rank+1)
		l := mse(f.Forward(x), y)
		if err := autograd.Backward(l); err != nil {
			return err
		}
		g, err := values([]*core.Tensor{last.Bias.Grad()})
		if err != nil {
			return err
		}
		all := make([]*core.Tensor, 2)
		for i := range all {
			all[i] = core.FromSlice(make([]float64, 2))
		}
		if err := r.World.AllGather(all, core.FromSlice(g)).Wait(); err != nil {
			return err
		}
		a, _ := values(all[:1])
		b, _ := values(all[1:])
		if equal("", a, b) == nil {
			return errors.New("the gradient of an ignored parameter was averaged")
		}
		return f.Close()
	})
}

// Case 31: gradients of several passes add up, sent each time or only the last, as those of one large batch.
func TestCase31Accumulation(t *testing.T) {
	const world, parts = 2, 3
	var want []float64
	in64(t, func() {
		m := model()
		for i := range parts {
			x, y := batch(i, 0, 2*world)
			require.NoError(t, autograd.Backward(mse(m.Forward(x), y)))
		}
		for _, p := range nn.Parameters(m) {
			v, err := core.Values[float64](p.Grad())
			require.NoError(t, err)
			want = append(want, v...)
		}
	})
	for _, send := range []bool{true, false} {
		for _, o := range []fsdp.Options{{}, {KeepAfterForward: true}} {
			spawn(t, world, func(r *collective.Rank) error {
				m := model()
				f, err := fsdp.New(m, r.World, blocks, o)
				if err != nil {
					return err
				}
				for i := range parts {
					pass := func() error {
						x, y := batch(i, r.Rank*2, (r.Rank+1)*2)
						return autograd.Backward(mse(f.Forward(x), y))
					}
					if i < parts-1 && !send {
						before := r.World.Stats().Bytes["reduce_scatter"]
						if err := f.NoSync(pass); err != nil {
							return err
						}
						if r.World.Stats().Bytes["reduce_scatter"] != before {
							return errors.New("a pass without synchronisation sent gradients")
						}
					} else if err := pass(); err != nil {
						return err
					}
				}
				got, err := fullGrads(f)
				return errors.Join(err, near("gradients", got, want, 1e-9), f.Close())
			})
		}
	}
}

// fullGrads returns the gradients of all parameters of the model in full.
func fullGrads(f *fsdp.FullyShardedDataParallel) ([]float64, error) {
	byName := map[string][]float64{}
	for _, u := range f.Tree().Units() {
		for _, l := range u.Layout() {
			full, err := u.Assemble(l.Name, u.Shard(l.Name).Grad())
			if err != nil {
				return nil, err
			}
			v, err := core.Values[float64](full)
			if err != nil {
				return nil, err
			}
			byName[l.Name] = v
		}
	}
	var all []float64
	for _, n := range nn.NamedParameters(f.Module) {
		all = append(all, byName[n.Name]...)
	}
	return all, nil
}

// Case 32: the norm of the divided gradients is that of the whole ones, and clipping scales by it.
func TestCase32ClipGradNorm(t *testing.T) {
	for _, power := range []float64{1, 2, 3, math.Inf(1)} {
		var want float64
		var clipped []float64
		in64(t, func() {
			m := model()
			x, y := batch(0, 0, 6)
			require.NoError(t, autograd.Backward(mse(m.Forward(x), y)))
			var err error
			want, err = optim.ClipGradNorm(nn.Parameters(m), 0.05, optim.ClipOptions{Norm: power}).Item()
			require.NoError(t, err)
			for _, p := range nn.Parameters(m) {
				v, err := core.Values[float64](p.Grad())
				require.NoError(t, err)
				clipped = append(clipped, v...)
			}
		})
		spawn(t, 3, func(r *collective.Rank) error {
			f, err := fsdp.New(model(), r.World, blocks, fsdp.Options{})
			if err != nil {
				return err
			}
			x, y := batch(0, r.Rank*2, (r.Rank+1)*2)
			if err := autograd.Backward(mse(f.Forward(x), y)); err != nil {
				return err
			}
			got, err := f.ClipGradNorm(0.05, optim.ClipOptions{Norm: power}).Item()
			if err != nil {
				return err
			}
			grads, err := fullGrads(f)
			return errors.Join(err, near("norm", []float64{got}, []float64{want}, 1e-9), near("clipped", grads, clipped, 1e-9), f.Close())
		})
	}
}

// Case 33: groups of two ranks that divide, twice, are as four that do; and copies alone are as DDP.
func TestCase33HybridSharding(t *testing.T) {
	const world = 4
	var want []float64
	in64(t, func() {
		var err error
		want, err = alone(model(), "adam", 4, 2*world)
		require.NoError(t, err)
	})
	spawn(t, world, func(r *collective.Rank) error {
		var shards, copies *collective.Group
		for _, ranks := range [][]int{{0, 1}, {2, 3}} {
			g, err := r.World.New(ranks, collective.Options{})
			if err != nil {
				return err
			}
			if g != nil {
				shards = g
			}
		}
		for _, ranks := range [][]int{{0, 2}, {1, 3}} {
			g, err := r.World.New(ranks, collective.Options{})
			if err != nil {
				return err
			}
			if g != nil {
				copies = g
			}
		}
		for _, c := range []struct {
			group *collective.Group
			o     fsdp.Options
		}{
			{shards, fsdp.Options{Replicas: copies}},
			{shards, fsdp.Options{Replicas: copies, KeepAfterForward: true}},
			{nil, fsdp.Options{Replicas: r.World}},
		} {
			m := model()
			f, err := fsdp.New(m, c.group, blocks, c.o)
			if err != nil {
				return err
			}
			opt, err := optimisers["adam"](nn.Parameters(m))
			if err != nil {
				return err
			}
			for s := range 4 {
				x, y := batch(s, r.Rank*2, (r.Rank+1)*2)
				if _, err := step(f.Forward, opt, x, y); err != nil {
					return err
				}
			}
			got, err := gathered(f)
			if err := errors.Join(err, near("parameters", got, want, 1e-9), f.Close()); err != nil {
				return err
			}
		}
		return nil
	})
}

// Case 34: shards on another device train as those on the one that computes, whose memory they leave.
func TestCase34Offload(t *testing.T) {
	const world = 2
	var want []float64
	in64(t, func() {
		var err error
		want, err = alone(model(), "adam", 3, 2*world)
		require.NoError(t, err)
	})
	device, err := core.OpenDevice("cpu:0")
	require.NoError(t, err)
	coretest.Settle(t, device) // what came before is not given back while this counts
	spawn(t, world, func(r *collective.Rank) error {
		host, err := core.OpenDevice("cpu:2")
		if err != nil {
			return err
		}
		used := func(c core.Category) int { return core.RankCategoryUsage(r.Device, r.Rank, c).Current }
		params, states := used(core.Parameter), used(core.OptimizerState)
		m := model()
		f, err := fsdp.New(m, r.World, blocks, fsdp.Options{Offload: host})
		if err != nil {
			return err
		}
		if n := used(core.Parameter) - params; n != 0 {
			return fmt.Errorf("%d bytes of parameters are left on %v", n, r.Device)
		}
		opt, err := optimisers["adam"](nn.Parameters(m))
		if err != nil {
			return err
		}
		for s := range 3 {
			x, y := batch(s, r.Rank*2, (r.Rank+1)*2)
			if _, err := step(f.Forward, opt, x, y); err != nil {
				return err
			}
		}
		if n := used(core.OptimizerState) - states; n != 0 {
			return fmt.Errorf("%d bytes of the optimiser's state are on %v", n, r.Device)
		}
		got, err := gathered(f)
		opt.Release()
		return errors.Join(err, near("parameters", got, want, 1e-9), f.Close())
	})
}

// Case 35: parameters are gathered and freed by hand, and another method than the module's own forward runs as a pass.
func TestCase35ByHand(t *testing.T) {
	var want []float64
	in64(t, func() {
		var err error
		want, err = values(nn.Parameters(model()))
		require.NoError(t, err)
	})
	spawn(t, 3, func(r *collective.Rank) error {
		m := model()
		f, err := fsdp.New(m, r.World, nil, fsdp.Options{})
		if err != nil {
			return err
		}
		u := f.Tree().Units()[0]
		if err := u.StartUnshard(); err != nil {
			return err
		}
		if u.Gathered() {
			return errors.New("a gather that was only begun has changed the module")
		}
		if err := u.Unshard(); err != nil {
			return err
		}
		got, err := values(nn.Parameters(m))
		if err := errors.Join(err, equal("gathered", got, want)); err != nil {
			return err
		}
		u.Reshard()
		shards, err := values(nn.Parameters(m))
		if err != nil {
			return err
		}
		if len(shards) >= len(want) {
			return fmt.Errorf("%d of %d values are left", len(shards), len(want))
		}
		x, y := batch(0, 0, 2)
		// The module's parts, used past it, say what is wrong.
		if err := m.Forward(x).Err(); err == nil || !strings.Contains(err.Error(), "is divided over ranks and is not gathered now") {
			return fmt.Errorf("got %v", err)
		}
		out, err := f.Run(func(in []*core.Tensor) []*core.Tensor {
			return []*core.Tensor{mse(m.Forward(in[0]), in[1])}
		}, x, y)
		if err != nil {
			return err
		}
		if err := autograd.Backward(out[0]); err != nil {
			return err
		}
		// Changes of whole parameters go back to the shards.
		err = f.Summon(fsdp.SummonOptions{}, func() error {
			var err error
			core.NoGrad(func() {
				for _, p := range nn.Parameters(m) {
					err = errors.Join(err, op.MulInPlace(p, core.Num(2)).Err())
				}
			})
			return err
		})
		if err != nil {
			return err
		}
		twice, err := gathered(f)
		for i := range want {
			if twice[i] != 2*want[i] {
				return fmt.Errorf("value %d is %v, want %v", i, twice[i], 2*want[i])
			}
		}
		return errors.Join(err, f.Close())
	})
}

// Case 36: a rank has 1/n of the optimiser's state. Case 37: what goes over the wire.
func TestCase36And37StateAndBytes(t *testing.T) {
	const world = 4
	for _, keep := range []bool{false, true} {
		err := collective.Spawn(world, []string{"cpu:0"}, collective.Options{}, func(r *collective.Rank) error {
			m := deep(0)
			f, err := fsdp.New(m, r.World, blocks, fsdp.Options{KeepAfterForward: keep})
			if err != nil {
				return err
			}
			opt, err := optimisers["adam"](nn.Parameters(m))
			if err != nil {
				return err
			}
			total := 4 * layers * (side*side + side)
			for s := range 3 {
				before := r.World.Stats().Bytes
				core.Tidy(func() {
					opt.ZeroGrad()
					if err = autograd.Backward(op.Mean(f.Forward(op.Ones(1, side)), nil, false)); err == nil {
						err = opt.Step()
					}
				})
				if err != nil {
					return err
				}
				after := r.World.Stats().Bytes
				gathers := 2
				if keep {
					gathers = 1
				}
				share := total * (world - 1) / world
				if got := after["all_gather"] - before["all_gather"]; got != gathers*share {
					return fmt.Errorf("step %d gathered %d bytes, want %d", s, got, gathers*share)
				}
				if got := after["reduce_scatter"] - before["reduce_scatter"]; got != share {
					return fmt.Errorf("step %d reduced %d bytes, want %d", s, got, share)
				}
			}
			if got := opt.StateBytes(); got != 2*total/world {
				return fmt.Errorf("the optimiser's state has %d bytes, want %d", got, 2*total/world)
			}
			return f.Close()
		})
		require.NoError(t, err)
	}
}

// What a checkpoint computes again is computed with whole parameters, inside units and around them.
func TestCheckpointedUnits(t *testing.T) {
	const world = 2
	again := func(l nn.Layer) func(x *core.Tensor) *core.Tensor {
		return func(x *core.Tensor) *core.Tensor {
			return autograd.Checkpoint(func(in []*core.Tensor) []*core.Tensor {
				return []*core.Tensor{nn.Call(l, in[0])}
			}, x)[0]
		}
	}
	var want []float64
	in64(t, func() {
		var err error
		want, err = alone(model(), "sgd", 3, 2*world)
		require.NoError(t, err)
	})
	for _, policy := range []fsdp.Policy{nil, blocks, fsdp.ByType(&nn.Linear{}, &gain{})} {
		spawn(t, world, func(r *collective.Rank) error {
			m := model()
			f, err := fsdp.New(m, r.World, policy, fsdp.Options{})
			if err != nil {
				return err
			}
			opt, err := optimisers["sgd"](nn.Parameters(m))
			if err != nil {
				return err
			}
			forward := func(x *core.Tensor) *core.Tensor {
				out, err := f.Run(func(in []*core.Tensor) []*core.Tensor {
					y := in[0]
					for _, l := range m.Layers {
						y = again(l)(y)
					}
					return []*core.Tensor{y}
				}, x)
				if err != nil {
					return core.ErrorTensor(err)
				}
				return out[0]
			}
			for s := range 3 {
				x, y := batch(s, r.Rank*2, (r.Rank+1)*2)
				if _, err := step(forward, opt, x, y); err != nil {
					return err
				}
			}
			got, err := gathered(f)
			return errors.Join(err, near("parameters", got, want, 1e-9), f.Close())
		})
	}
}

// A parameter that no rank uses keeps no gradient; one that some rank uses has the average everywhere.
func TestUnusedParameters(t *testing.T) {
	spawn(t, 3, func(r *collective.Rank) error {
		a, b, c := nn.NewLinear(width, 2, nn.LinearOptions{}), nn.NewLinear(width, 2, nn.LinearOptions{}), nn.NewLinear(width, 2, nn.LinearOptions{})
		m := nn.NewSequential(a, b, c)
		f, err := fsdp.New(m, r.World, nil, fsdp.Options{})
		if err != nil {
			return err
		}
		x, y := batch(0, 0, 2)
		out, err := f.Run(func(in []*core.Tensor) []*core.Tensor {
			z := nn.Call(a, in[0])
			if r.Rank == 1 {
				z = op.Add(z, nn.Call(b, in[0]))
			}
			return []*core.Tensor{mse(z, in[1])}
		}, x, y)
		if err != nil {
			return err
		}
		if err := autograd.Backward(out[0]); err != nil {
			return err
		}
		for i, l := range []*nn.Linear{a, b, c} {
			if has := l.Weight.Grad() != nil; has != (i < 2) {
				return fmt.Errorf("layer %d has a gradient: %v", i, has)
			}
		}
		return f.Close()
	})
}

// What cannot work is an error, the same kind on every rank, that says what to do.
func TestBadInput(t *testing.T) {
	for _, c := range []struct {
		do   func(r *collective.Rank) error
		want string
	}{
		{func(r *collective.Rank) error { // a parameter created after the module was divided
			m := model()
			f, err := fsdp.New(m, r.World, blocks, fsdp.Options{})
			if err != nil {
				return err
			}
			m.RegisterParameter("late", op.Ones(2).Keep().SetRequiresGrad(true))
			x, _ := batch(0, 0, 1)
			return f.Forward(x).Err()
		}, "parameter late was created after the module was divided"},
		{func(r *collective.Rank) error { // an optimiser made before
			m := model()
			opt, err := optimisers["sgd"](nn.Parameters(m))
			if err != nil {
				return err
			}
			f, err := fsdp.New(m, r.World, blocks, fsdp.Options{})
			if err != nil {
				return err
			}
			x, y := batch(0, 0, 1)
			_, err = step(f.Forward, opt, x, y)
			return err
		}, "make the optimiser after the model is fully sharded"},
		{func(r *collective.Rank) error { // ranks with other models
			sizes := []int{4, 4, 5}
			_, err := fsdp.New(nn.NewSequential(nn.NewLinear(3, sizes[r.Rank], nn.LinearOptions{})), r.World, nil, fsdp.Options{})
			return err
		}, `"0.weight", float64[4 3] on ranks [0 1], "0.weight", float64[5 3] on ranks [2]`},
		{func(r *collective.Rank) error { // ranks with other options
			_, err := fsdp.New(model(), r.World, nil, fsdp.Options{KeepAfterForward: r.Rank == 1})
			return err
		}, "how the unit is divided"},
		{func(r *collective.Rank) error { // a module divided twice
			m := model()
			if _, err := fsdp.New(m, r.World, nil, fsdp.Options{}); err != nil {
				return err
			}
			_, err := fsdp.New(m, r.World, nil, fsdp.Options{})
			return err
		}, "is divided over ranks already"},
		{func(r *collective.Rank) error { // a state of another shape
			f, err := fsdp.New(model(), r.World, nil, fsdp.Options{})
			if err != nil {
				return err
			}
			_, err = f.Load(map[string]*core.Tensor{"3.bias": op.Ones(3), "x": op.Ones(1)}, true)
			return err
		}, "3.bias (got [3], want [2])"},
		{func(r *collective.Rank) error {
			_, err := fsdp.New(model(), r.World, nil, fsdp.Options{Partial: 2})
			return err
		}, "must divide the 3 ranks"},
	} {
		require.NoError(t, trySpawn(3, func(r *collective.Rank) error {
			if err := c.do(r); err == nil || !strings.Contains(err.Error(), c.want) {
				return fmt.Errorf("got %v, want %s", err, c.want)
			}
			return r.World.Barrier()
		}))
	}
}
