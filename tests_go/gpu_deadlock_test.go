package tests_go

import (
	"fmt"
	"maps"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op"
	"github.com/plait-ml/plait/parallel/collective"
)

// crossedOrders are ways in which ranks use the results of collectives of two groups in different orders. Each makes the calls of rank 1 if
// later is set, and those of the other ranks otherwise, with tensors of n elements, and returns a result that never comes.
var crossedOrders = map[string]func(r *collective.Rank, a, b *collective.Group, later bool, n int) *core.Tensor{
	"in place": func(r *collective.Rank, a, b *collective.Group, later bool, n int) *core.Tensor {
		if later {
			a, b = b, a
		}
		x := ones(r, n)
		a.AllReduce(x, collective.Sum)
		b.AllReduce(x, collective.Sum)
		return x
	},
	"computed": func(r *collective.Rank, a, b *collective.Group, later bool, n int) *core.Tensor {
		if later {
			a, b = b, a
		}
		x := ones(r, n)
		a.AllReduce(x, collective.Sum)
		y := op.Add(x, x)
		b.AllReduce(y, collective.Sum)
		return op.Add(y, y)
	},
	"pieces": func(r *collective.Rank, a, b *collective.Group, later bool, n int) *core.Tensor {
		x, all := ones(r, n), ones(r, n*a.Size())
		if later {
			b.ReduceScatterInto(x, all, collective.Sum)
			y := op.Add(x, x)
			a.AllGatherInto(all, y)
			return op.Add(all, all)
		}
		a.AllGatherInto(all, x)
		y := op.Add(all, all)
		b.ReduceScatterInto(x, y, collective.Sum)
		return op.Add(x, x)
	},
	"sends": func(r *collective.Rank, a, b *collective.Group, _ bool, n int) *core.Tensor {
		next, before := (r.Rank+1)%a.Size(), (r.Rank+a.Size()-1)%a.Size()
		x := ones(r, n)
		b.Recv(x, before, 0)
		y := op.Add(x, x)
		b.Send(y, next, 0)
		return op.Add(x, y)
	},
}

// ones returns n ones on the rank's device.
func ones(r *collective.Rank, n int) *core.Tensor {
	return op.OnesWith([]int{n}, op.TensorOptions{Device: r.Device})
}

// TestDeadlockThroughResultsOnGPUs makes ranks use the results of collectives in different orders. They get an error, however they wait, and
// can use their streams and groups afterwards.
func TestDeadlockThroughResultsOnGPUs(t *testing.T) {
	needGPU(t)
	waits := map[string]func(x *core.Tensor) error{
		"value": func(x *core.Tensor) error { return x.Wait() },
		"stream": func(x *core.Tensor) error {
			if err := core.CurrentContext().Stream(x.Device()).Synchronize(); err != nil {
				return err
			}
			return x.Wait()
		},
	}
	where := maps.Clone(places)
	where["two gpus"] = []string{"gpu:0", "gpu:1"}
	for place, devices := range where {
		for order, call := range crossedOrders {
			for how, wait := range waits {
				if how == "stream" && len(devices) > 1 {
					continue
				}
				t.Run(fmt.Sprintf("%s, %s, %s", place, order, how), func(t *testing.T) {
					t.Parallel() // most of the time is spent until the world looks for deadlocks
					const n = 1000
					errs := make([]error, 3)
					require.NoError(t, spawn(t, 3, devices, func(r *collective.Rank) error {
						other, err := r.World.New([]int{0, 1, 2}, collective.Options{Name: "other", Timeout: limit})
						if err != nil {
							return err
						}
						errs[r.Rank] = wait(call(r, r.World, other, r.Rank == 1, n))
						return works(r, n, r.World, other)
					}))
					for _, err := range errs {
						require.ErrorContains(t, err, "deadlock, collectives wait for each other's results: rank ")
						require.ErrorContains(t, err, `of the group "other"`)
					}
				})
			}
		}
	}
}

// works checks that the rank's streams and the groups give right results.
func works(r *collective.Rank, n int, groups ...*collective.Group) error {
	for i, g := range groups {
		x := ones(r, n)
		g.AllReduce(x, collective.Sum)
		y := op.Add(x, core.Num(float64(i)))
		z := ones(r, n)
		sent, got := g.Send(y, (g.Rank()+1)%g.Size(), 1), g.Recv(z, (g.Rank()+g.Size()-1)%g.Size(), 1)
		if err := (collective.Works{sent, got}).Wait(); err != nil {
			return err
		}
		v, err := core.Values[float32](op.Mul(z, core.Num(2)))
		if err != nil {
			return err
		}
		for _, got := range v {
			if want := float32(2 * (g.Size() + i)); got != want {
				return fmt.Errorf("rank %d got %v, want %v", r.Rank, got, want)
			}
		}
	}
	return nil
}
