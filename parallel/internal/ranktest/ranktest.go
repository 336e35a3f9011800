// Package ranktest has helpers for tests of training on several ranks: ranks that are threads, batches, optimisers and comparisons.
package ranktest

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/coretest"
	"github.com/plait-ml/plait/core/op"
	"github.com/plait-ml/plait/core/optim"
	"github.com/plait-ml/plait/parallel/collective"
	"github.com/plait-ml/plait/parallel/internal/worldtest"
	"github.com/stretchr/testify/require"
)

// Spawn runs fn on n ranks that share two devices, with float64 as the default dtype. seed gives the seed of a rank's generators.
func Spawn(n int, seed func(rank int) uint64, fn func(r *collective.Rank) error) error {
	o := collective.Options{Timeout: 2 * time.Minute, Log: func(string) {}}
	return worldtest.Spawn(n, []string{"cpu:0", "cpu:1"}, o, func(r *collective.Rank) error {
		if err := core.CurrentContext().SetDefaultDType(core.Float64); err != nil {
			return err
		}
		core.ManualSeed(seed(r.Rank))
		return fn(r)
	})
}

// In64 runs fn with float64 as the default dtype, without ranks.
func In64(t *testing.T, fn func()) {
	t.Helper()
	ctx := core.NewRankContext(0, nil)
	defer ctx.Free()
	require.NoError(t, ctx.SetDefaultDType(core.Float64))
	core.WithContext(ctx, fn)
}

// Width is the number of features of a sample of [Batch]. A sample has two targets.
const Width = 6

// Batch returns samples [from, to) of a step's batch: inputs and targets. The same arguments always give the same samples.
func Batch(step, from, to int) (x, y *core.Tensor) {
	var a, b []float64
	for i := from; i < to; i++ {
		rng := rand.New(rand.NewPCG(uint64(step), uint64(i)))
		s := 0.0
		for range Width {
			v := rng.Float64()*2 - 1
			a = append(a, v)
			s += v
		}
		b = append(b, math.Sin(s), s/3)
	}
	d := core.CurrentContext().DefaultDType()
	return op.To(core.FromSlice(a, to-from, Width), d), op.To(core.FromSlice(b, to-from, 2), d)
}

// MSE returns the mean of the squared differences.
func MSE(y, want *core.Tensor) *core.Tensor {
	e := op.Sub(y, want)
	return op.Mean(op.Mul(e, e), nil, false)
}

// Values returns all elements of the tensors, one after the other; of a distributed tensor those of this rank's part.
func Values(tensors []*core.Tensor) ([]float64, error) {
	var all []float64
	for _, p := range tensors {
		if parts := p.Parts(); parts != nil {
			p = parts.Local()
		}
		v, err := core.Values[float64](p)
		if err != nil {
			return nil, err
		}
		all = append(all, v...)
	}
	return all, nil
}

// Near returns an error unless a and b are equal within a relative tolerance. NaN equals NaN.
func Near(what string, a, b []float64, tol float64) error {
	if len(a) != len(b) {
		return fmt.Errorf("%s: %d values and %d", what, len(a), len(b))
	}
	for i := range a {
		if math.IsNaN(a[i]) != math.IsNaN(b[i]) || math.Abs(a[i]-b[i]) > tol*(1+math.Abs(b[i])) {
			return fmt.Errorf("%s: value %d is %v, want %v", what, i, a[i], b[i])
		}
	}
	return nil
}

// Equal returns an error unless a and b are equal. NaN equals NaN.
func Equal(what string, a, b []float64) error { return Near(what, a, b, 0) }

// Optimisers holds constructors of optimisers, by name.
var Optimisers = map[string]func(p []*core.Tensor) (*optim.Optimizer, error){
	"sgd": func(p []*core.Tensor) (*optim.Optimizer, error) { return optim.NewSGD(p, optim.Hyper{"lr": 0.1}) },
	"momentum": func(p []*core.Tensor) (*optim.Optimizer, error) {
		return optim.NewSGD(p, optim.Hyper{"lr": 0.1, "momentum": 0.9})
	},
	"adam": func(p []*core.Tensor) (*optim.Optimizer, error) { return optim.NewAdam(p, optim.Hyper{"lr": 0.01}) },
}

// Together runs fn the given number of times on each of several threads at once, in the caller's context. It returns the number of calls that
// succeeded, and the errors of the others. The error that two threads use one object is expected and left out.
func Together(threads, times int, fn func(thread int) error) (done int, err error) {
	var mu sync.Mutex
	var wg sync.WaitGroup
	ctx := core.CurrentContext()
	for i := range threads {
		wg.Go(func() {
			core.WithContext(ctx, func() {
				for range times {
					e := fn(i)
					mu.Lock()
					switch {
					case e == nil:
						done++
					case !strings.Contains(e.Error(), "two threads use one"):
						err = errors.Join(err, e)
					}
					mu.Unlock()
				}
			})
		})
	}
	wg.Wait()
	return done, err
}

// FailAllocation makes the n-th tensor allocation of a rank from now on fail, until [core.SetAllocFault] is called again. It does not count
// large allocations: they are scratch memory that kernels allocate when they run, so their number varies.
func FailAllocation(rank, n int) {
	var count atomic.Int64
	core.SetAllocFault(func(from core.Stream, bytes int) bool {
		return from.Rank() == rank && bytes < 32<<10 && count.Add(1) == int64(n)
	})
}

// FailEachAllocation runs train once for each allocation of a step, which fails in that run, and requires that the final parameters do not
// change. train makes allocation n of the step fail, or none if n is negative. It returns the final parameters, and whether the step had so
// many allocations.
func FailEachAllocation(t *testing.T, step int, train func(n int) (final []float64, failed bool)) {
	t.Helper()
	want, _ := train(-1)
	for n := 1; ; n += coretest.Stride() {
		got, failed := train(n)
		require.NoError(t, Equal(fmt.Sprintf("parameters after allocation %d of step %d failed", n, step), got, want))
		if !failed {
			require.Greater(t, n, 5)
			return
		}
	}
}
