package pipeline

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/nn"
	"github.com/plait-ml/plait/core/op"
	"github.com/plait-ml/plait/parallel/collective"
)

// If an allocation fails on one rank, the step fails on all ranks with an error that names the rank. The next step is not affected.
func TestOutOfMemoryOnARank(t *testing.T) {
	in64(t, func() {
		for i, name := range Names() {
			if testing.Short() && i > 1 {
				break
			}
			for failing := range 2 {
				f := newFaultySteps(t, name)
				stride := 1
				if failing != i%2 {
					stride = 3
				}
				got := f.run(t, failing, stride, 1000)
				require.Greater(t, len(got), 20/stride, name)
				want := f.run(t, -1, 0, len(got))
				require.Equal(t, want, got, "%s, parameters by step, with failures on rank %d", name, failing)
			}
		}
	})
}

// faultySteps trains on two ranks. One allocation of one rank fails in each step, a later one from step to step.
type faultySteps struct {
	place     []int
	schedule  *Schedule
	model     *nn.Sequential
	tied      *core.Tensor
	stages    []int // that use it
	x, target *core.Tensor
}

func newFaultySteps(t *testing.T, name string) *faultySteps {
	chunks, err := Chunks(name, 0)
	require.NoError(t, err)
	f := &faultySteps{x: op.Rand(5, 3), target: op.Rand(5, 3), tied: op.Rand(3, 3).SetRequiresGrad(true)}
	f.place, err = Place(name, 2, chunks)
	require.NoError(t, err)
	f.schedule, err = New(name, 2, 2, chunks)
	require.NoError(t, err)
	f.stages = slices.Compact([]int{0, 1, len(f.place) - 1})
	f.model = nn.NewSequential()
	for s := range f.place {
		layers := []nn.Layer{nn.NewLinear(3, 3, nn.LinearOptions{}), nn.NewBatchNorm1d(3, nn.BatchNormOptions{})}
		if slices.Contains(f.stages, s) {
			layers = append(layers, &projection{Weight: f.tied})
		}
		f.model.Layers = append(f.model.Layers, nn.NewSequential(layers...))
	}
	return f
}

// run makes steps until there is no allocation left to fail, or the given number of them, and returns the parameters after each. The
// allocation that fails is a later one in each step, by stride.
func (f *faultySteps) run(t *testing.T, failing, stride, steps int) [][]float64 {
	defer core.SetAllocFault(nil)
	params := make([][][]float64, 2)
	var done atomic.Bool
	require.NoError(t, collective.Spawn(2, nil, collective.Options{}, func(r *collective.Rank) error {
		if err := core.CurrentContext().SetDefaultDType(core.Float64); err != nil {
			return err
		}
		moved := map[*core.Tensor]*core.Tensor{}
		mine := &nn.Sequential{Layers: slices.Clone(f.model.Layers)}
		var own []nn.Named
		for s := range mine.Layers {
			if f.place[s] != r.Rank {
				continue
			}
			mine.Layers[s] = nn.Replicate(mine.Layers[s], func(n nn.Named) *core.Tensor {
				if moved[n.Tensor] == nil {
					v := op.Clone(op.ToDevice(n.Tensor.Detach(), r.Device))
					if n.Tensor == f.tied && r.Rank > 0 { // the first rank has the values that count
						v = op.ZerosLike(v, op.TensorOptions{})
					}
					moved[n.Tensor] = v.Detach().Keep().SetRequiresGrad(n.Kind == nn.Parameter)
					own = append(own, nn.Named{Name: n.Name, Tensor: moved[n.Tensor], Kind: n.Kind})
				}
				return moved[n.Tensor]
			}).(nn.Layer)
		}
		e, err := NewRankExecutor(r.World, r.Device, f.place)
		if err != nil {
			return err
		}
		if err := e.Share(moved[f.tied], f.stages); err != nil {
			return err
		}
		var tensors []*core.Tensor
		for _, n := range own {
			tensors = append(tensors, n.Tensor)
		}
		used := 0
		for k := 1; k <= steps && !done.Load(); k++ {
			var hit atomic.Bool
			if r.Rank == failing {
				var n atomic.Int64
				core.SetAllocFault(func(from core.Stream, bytes int) bool { // of tensors: kernels ask for scratch memory when they run
					if from.Rank() == failing && bytes < 32<<10 && n.Add(1) == int64(1+(k-1)*stride) {
						hit.Store(true)
						return true
					}
					return false
				})
			}
			core.Tidy(func() { _, err = rankStep(r, e, f.schedule, mine, f.x, f.target) })
			if r.Rank == failing {
				core.SetAllocFault(nil)
				if hit.Load() == (err == nil) {
					return fmt.Errorf("step %d: an allocation failed: %v, got %v", k, hit.Load(), err)
				}
				done.Store(err == nil)
			}
			if err != nil {
				kind, _ := core.KindOf(err)
				if kind != core.MemoryError || failing < 0 || r.Rank != failing && !strings.HasPrefix(err.Error(), fmt.Sprintf("rank %d has failed: ", failing)) {
					return fmt.Errorf("step %d, kind %v: %w", k, kind, err)
				}
				Forget(tensors)
				if err := r.Device.Synchronize(); err != nil && !collective.FailsStep(err) {
					return err
				}
				if now := core.RankUsage(r.Device, r.Rank).Current; used > 0 && now > used {
					return fmt.Errorf("step %d: %d bytes are in use, before there were %d", k, now, used)
				}
				core.Tidy(func() { _, err = rankStep(r, e, f.schedule, mine, f.x, f.target) })
				if err != nil {
					return fmt.Errorf("step %d again: %w", k, err)
				}
			}
			var all []float64
			for _, n := range own {
				if n.Kind != nn.Parameter {
					if err := n.Tensor.Wait(); err != nil {
						return fmt.Errorf("step %d, %s: %w", k, n.Name, err)
					}
					continue
				}
				core.Tidy(func() {
					core.NoGrad(func() { op.AddInPlace(n.Tensor, op.Mul(n.Tensor.Grad(), core.Num(-0.1))) })
				})
				n.Tensor.SetGrad(nil)
				v, err := core.Values[float64](n.Tensor)
				if err != nil {
					return err
				}
				all = append(all, v...)
			}
			params[r.Rank] = append(params[r.Rank], all)
			if err := r.World.Barrier(); err != nil { // both know whether the last step is done
				return err
			}
			used = core.RankUsage(r.Device, r.Rank).Current
		}
		return errors.Join(e.Release())
	}), "failures on rank %d", failing)
	for k := range params[0] {
		params[0][k] = append(params[0][k], params[1][k]...)
	}
	return params[0]
}
