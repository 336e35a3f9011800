package ddp_test

import (
	"fmt"
	"testing"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/autograd"
	"github.com/plait-ml/plait/core/nn"
	"github.com/plait-ml/plait/core/optim"
	"github.com/plait-ml/plait/parallel/collective"
	"github.com/plait-ml/plait/parallel/ddp"
	"github.com/plait-ml/plait/parallel/internal/ranktest"
	"github.com/stretchr/testify/require"
)

// If a rank runs out of memory in backward, backward fails on all ranks. The next pass is not affected.
func TestOutOfMemoryInBackward(t *testing.T) {
	hook := func(p *ddp.DistributedDataParallel) error {
		return p.Reducer().RegisterHook(ddp.CompressHook(core.Float32, nil))
	}
	for name, c := range map[string]faultCase{
		"buckets":           {options: small},
		"views":             {options: ddp.Options{FirstBucketBytes: 1, BucketBytes: 200, BucketView: true}},
		"unused":            {options: ddp.Options{FirstBucketBytes: 1, BucketBytes: 200, FindUnused: true}},
		"static":            {options: ddp.Options{FirstBucketBytes: 1, BucketBytes: 200, StaticGraph: true}},
		"weighted":          {options: ddp.Options{FirstBucketBytes: 1, BucketBytes: 200, Weighted: true}},
		"buffers":           {options: small, model: func() *nn.Sequential { return nn.NewSequential(nn.NewBatchNorm1d(width, nn.BatchNormOptions{}), mlp()) }},
		"hook":              {options: small, prepare: hook},
		"accumulation":      {options: small, micro: 2},
		"accumulated views": {options: ddp.Options{FirstBucketBytes: 1, BucketBytes: 200, BucketView: true}, micro: 1},
	} {
		if testing.Short() && name != "buckets" && name != "accumulation" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			for _, at := range []int{0, 1, 2} { // before and after buckets are rebuilt
				ranktest.FailEachAllocation(t, at, func(k int) ([]float64, bool) { return c.train(t, at, k) })
			}
		})
	}
}

// If a rank runs out of memory in a forward pass or in the loss, the step fails on all ranks, also with buffers.
func TestOutOfMemoryInForward(t *testing.T) {
	norm := func() *nn.Sequential { return nn.NewSequential(nn.NewBatchNorm1d(width, nn.BatchNormOptions{}), mlp()) }
	for name, c := range map[string]faultCase{
		"buffers":      {options: small, model: norm},
		"views":        {options: ddp.Options{FirstBucketBytes: 1, BucketBytes: 200, BucketView: true}, model: norm},
		"accumulation": {options: small, model: norm, micro: 2},
		"no buffers":   {options: small},
	} {
		if testing.Short() && name != "buffers" {
			continue
		}
		c.forward = true
		t.Run(name, func(t *testing.T) {
			for _, at := range []int{0, 1, 2} {
				ranktest.FailEachAllocation(t, at, func(k int) ([]float64, bool) { return c.train(t, at, k) })
			}
		})
	}
}

// faultCase configures training in which one allocation of one pass fails.
type faultCase struct {
	forward bool // the failing pass is the forward pass with the loss, otherwise backward
	options ddp.Options
	model   func() *nn.Sequential // nil means mlp
	prepare func(p *ddp.DistributedDataParallel) error
	micro   int // passes in NoSync before the failing one
}

// train makes three steps on two ranks. In step at, allocation k of rank 1's pass fails. It returns the final parameters, and whether the
// pass had so many allocations.
func (c faultCase) train(t *testing.T, at, k int) (final []float64, failed bool) {
	t.Helper()
	defer core.SetAllocFault(nil)
	finals := make([][]float64, 2)
	var seen [2]int
	spawn(t, 2, func(r *collective.Rank) error {
		make := mlp
		if c.model != nil {
			make = c.model
		}
		p, err := ddp.New(make(), r.World, c.options)
		if err != nil {
			return err
		}
		if c.prepare != nil {
			if err := c.prepare(p); err != nil {
				return err
			}
		}
		o, err := optim.NewAdam(nn.Parameters(p), optim.Hyper{"lr": 0.01})
		if err != nil {
			return err
		}
		for s := 0; s < 3; s++ {
			x, y := batch(s, r.Rank*4, r.Rank*4+4)
			for again := true; again; {
				again = false
				fault := func() {
					if s == at && seen[r.Rank] == 0 && r.Rank == 1 {
						ranktest.FailAllocation(1, k)
					}
				}
				core.Tidy(func() {
					o.ZeroGrad()
					for i := range c.micro {
						x, y := batch(100+10*s+i, r.Rank*4, r.Rank*4+4)
						err = p.NoSync(func() error { return autograd.Backward(mse(nn.Call(p, x), y)) })
						if err != nil {
							return
						}
					}
					if c.forward {
						fault()
					}
					loss := mse(nn.Call(p, x), y)
					if c.forward && r.Rank == 1 {
						core.SetAllocFault(nil)
					} else {
						fault()
					}
					if err = loss.Err(); err == nil { // a rank that starts late gets the other rank's error in forward
						err = autograd.Backward(loss)
					}
					if r.Rank == 1 {
						core.SetAllocFault(nil)
					}
					if err != nil && seen[r.Rank] < 2 && c.fails(err) {
						seen[r.Rank]++
						again, err = true, nil
						return
					}
					if err == nil {
						err = o.Step()
					}
				})
				if err != nil {
					return fmt.Errorf("step %d: %w", s, err)
				}
			}
		}
		for _, n := range nn.NamedTensors(p) { // buffers, too
			if err := n.Tensor.Wait(); err != nil {
				return fmt.Errorf("%s: %w", n.Name, err)
			}
		}
		if finals[r.Rank], err = values(p); err != nil {
			return err
		}
		return p.Close()
	})
	if !c.forward {
		require.Equal(t, seen[1], seen[0], "allocation %d", k)
		require.LessOrEqual(t, seen[0], 1, "allocation %d", k)
	}
	require.NoError(t, equal("parameters of the ranks", finals[1], finals[0]))
	return finals[0], seen[1] > 0
}

// fails reports whether err is the error that all ranks get if one runs out of memory. If the loss failed, which a reducer does not see, the
// other ranks get a DistributedError in backward, once the rank starts its forward pass again.
func (c faultCase) fails(err error) bool {
	kind, _ := core.KindOf(err)
	return kind == core.MemoryError || c.forward && kind == core.DistributedError
}

// From the second step on, two modules in different groups may run backward in a different order on each rank. If a rank runs out of memory
// in such a step, the step fails on both ranks.
func TestOutOfMemoryInOppositeOrders(t *testing.T) {
	run := func(t *testing.T, at int) []float64 {
		defer core.SetAllocFault(nil)
		finals := make([][]float64, 2)
		var seen [2]int
		spawn(t, 2, func(r *collective.Rank) error {
			var models [2]*ddp.DistributedDataParallel
			var params []*core.Tensor
			for i := range models {
				g, err := r.World.New([]int{0, 1}, collective.Options{})
				if err != nil {
					return err
				}
				if models[i], err = ddp.New(mlp(), g, small); err != nil {
					return err
				}
				params = append(params, nn.Parameters(models[i])...)
			}
			o, err := optim.NewAdam(params, optim.Hyper{"lr": 0.01})
			if err != nil {
				return err
			}
			for s := 0; s < 3; s++ {
				x, y := batch(s, r.Rank*4, r.Rank*4+4)
				core.Tidy(func() {
					o.ZeroGrad()
					for i := range models {
						loss := mse(nn.Call(models[(i+r.Rank*min(s, 1))%2], x), y) // in the first step, all ranks use one order
						if i == 1 && r.Rank == 1 && s == at && seen[1] == 0 {
							core.SetAllocFault(func(from core.Stream, bytes int) bool { return from.Rank() == 1 && bytes < 32<<10 })
						}
						err = autograd.Backward(loss)
						if r.Rank == 1 {
							core.SetAllocFault(nil)
						}
						if err != nil {
							break
						}
					}
					if err == nil {
						err = o.Step()
					}
				})
				if kind, _ := core.KindOf(err); err != nil && kind == core.MemoryError && seen[r.Rank] == 0 {
					seen[r.Rank]++
					s--
				} else if err != nil {
					return fmt.Errorf("step %d: %w", s, err)
				}
			}
			for _, m := range models {
				v, err := values(m)
				if err != nil {
					return err
				}
				finals[r.Rank] = append(finals[r.Rank], v...)
				if err := m.Close(); err != nil {
					return err
				}
			}
			return nil
		})
		require.Equal(t, seen[1], seen[0])
		require.Equal(t, at >= 0, seen[0] == 1)
		require.NoError(t, equal("parameters of the ranks", finals[1], finals[0]))
		return finals[0]
	}
	want := run(t, -1)
	for _, at := range []int{0, 1, 2} {
		require.NoError(t, equal("parameters", run(t, at), want))
	}
}
