package collective

import (
	"errors"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op"
)

// TestReadsDuringACollective reads tensors on another goroutine of the rank during a collective on several tensors. Each read
// must see values from before or from after the collective, and must not deadlock with it.
func TestReadsDuringACollective(t *testing.T) {
	const ranks, tensors, n = 2, 6, 5000
	err := spawn(ranks, onCPU0, longTimeout, func(r *Rank) error {
		list := make([]*core.Tensor, tensors)
		for i := range list {
			list[i] = op.Ones(n)
		}
		var stop atomic.Bool
		read := make(chan error, 1)
		ctx := core.CurrentContext()
		go func() {
			var err error
			for err == nil && !stop.Load() {
				core.WithContext(ctx, func() {
					core.Tidy(func() {
						for _, x := range list {
							c := op.Clone(x)
							low, high := op.Amin(c, nil, false), op.Amax(c, nil, false)
							a, first := low.Item()
							b, second := high.Item()
							if err = errors.Join(first, second); err == nil && a != b {
								err = errors.New("a tensor was read while a collective wrote to it")
							}
						}
					})
				})
			}
			read <- err
		}()
		var err error
		for range 100 {
			if err = r.World.AllReduceMany(list, Avg).Arrived(); err != nil {
				break
			}
			for _, x := range list {
				err = errors.Join(err, op.AddInPlace(x, core.Num(float64(r.Rank))).Err())
			}
		}
		stop.Store(true)
		return errors.Join(err, <-read)
	})
	require.NoError(t, err)
}
