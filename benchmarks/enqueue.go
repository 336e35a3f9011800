package main

import (
	"time"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op"
)

// enqueue measures the call of an operation, its execution included where the stream runs it on the caller's thread.
func enqueue(b *bench) {
	const goal = 0.7 // microseconds
	x := op.Rand(1000)
	parameter := op.Rand(1000)
	parameter.SetRequiresGrad(true)
	for _, c := range []struct {
		name string
		y    *core.Tensor
	}{
		{"add, no gradient", x},
		{"add, graph node included", parameter},
	} {
		b.addTimes(c.name, b.chain(c.y, func(t *core.Tensor) *core.Tensor { return op.Add(t, x) }), goal, 1)
	}
}

// chain returns the microseconds of one call in a chain of calls that nobody waits for.
func (b *bench) chain(first *core.Tensor, next func(*core.Tensor) *core.Tensor) float64 {
	const length = 2000
	best := time.Duration(1 << 62)
	for range 20 * rounds {
		core.Tidy(func() {
			t := first
			start := time.Now()
			for range length {
				t = next(t)
			}
			best = min(best, time.Since(start))
			if err := t.Wait(); err != nil && b.err == nil {
				b.err = err
			}
		})
	}
	return best.Seconds() * 1e6 / length
}
