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
	for name, c := range map[string]faulty{
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
			for _, at := range []int{0, 1, 2} { // before the buckets are made anew, and after
				ranktest.FailEachAllocation(t, at, func(k int) ([]float64, bool) { return c.train(t, at, k) })
			}
		})
	}
}

// If a rank runs out of memory in a forward pass or in the loss, the step fails on all ranks, also with buffers.
func TestOutOfMemoryInForward(t *testing.T) {
	norm := func() *nn.Sequential { return nn.NewSequential(nn.NewBatchNorm1d(width, nn.BatchNormOptions{}), mlp()) }
	for name, c := range map[string]faulty{
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

// faulty configures training in which one allocation of one pass fails.
type faulty struct {
	forward bool // it is the forward pass, with the loss
	options ddp.Options
	model   func() *nn.Sequential
	prepare func(p *ddp.DistributedDataParallel) error
	micro   int // batches whose gradients are added up without synchronisation before
}

// train returns the parameters after three steps of two ranks, in one of which allocation number k of rank 1's pass fails, and
// whether there were so many.
func (c faulty) train(t *testing.T, at, k int) (final []float64, failed bool) {
	t.Helper()
	defer core.SetAllocFault(nil)
	finals := make([][]float64, 2)
	var told [2]int
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
					if s == at && told[r.Rank] == 0 && r.Rank == 1 {
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
					if err = loss.Err(); err == nil { // a rank that begins late hears of the other's failure in forward
						err = autograd.Backward(loss)
					}
					if r.Rank == 1 {
						core.SetAllocFault(nil)
					}
					if err != nil && told[r.Rank] < 2 && c.fails(err) {
						told[r.Rank]++
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
		require.Equal(t, told[1], told[0], "allocation %d", k)
		require.LessOrEqual(t, told[0], 1, "allocation %d", k)
	}
	require.NoError(t, equal("parameters of the ranks", finals[1], finals[0]))
	return finals[0], told[1] > 0
}

// fails reports whether an error is one that all ranks get where one lacks memory. A reducer does not see the loss: there the others are
// told when the rank begins its forward pass anew, while they go backward.
func (c faulty) fails(err error) bool {
	kind, _ := core.KindOf(err)
	return kind == core.MemoryError || c.forward && kind == core.DistributedError
}

// From the second step on, two modules in groups of their own may go backward in another order on each rank. A pass that fails there, too, fails on both ranks
// in the same step.
func TestOutOfMemoryInOppositeOrders(t *testing.T) {
	run := func(t *testing.T, at int) []float64 {
		defer core.SetAllocFault(nil)
		finals := make([][]float64, 2)
		var told [2]int
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
						loss := mse(nn.Call(models[(i+r.Rank*min(s, 1))%2], x), y) // the first step's order is that of all ranks
						if i == 1 && r.Rank == 1 && s == at && told[1] == 0 {
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
				if kind, _ := core.KindOf(err); err != nil && kind == core.MemoryError && told[r.Rank] == 0 {
					told[r.Rank]++
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
		require.Equal(t, told[1], told[0])
		require.Equal(t, at >= 0, told[0] == 1)
		require.NoError(t, equal("parameters of the ranks", finals[1], finals[0]))
		return finals[0]
	}
	want := run(t, -1)
	for _, at := range []int{0, 1, 2} {
		require.NoError(t, equal("parameters", run(t, at), want))
	}
}
