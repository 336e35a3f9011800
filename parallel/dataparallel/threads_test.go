package dataparallel_test

import (
	"testing"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/autograd"
	"github.com/plait-ml/plait/parallel/dataparallel"
	"github.com/plait-ml/plait/parallel/internal/ranktest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Threads that use one module at the same time get an error. The module works afterwards.
func TestThreadsWithOneModule(t *testing.T) {
	in64(t, func() {
		d := parallel(t, mlp(3), dataparallel.Options{})
		defer d.Release()
		pass := func(thread int) (err error) {
			core.Tidy(func() {
				x, y := batch(thread, 6)
				l := mse(d.Forward(x), y)
				if err = l.Err(); err == nil {
					err = autograd.Backward(l)
				}
				if err == nil && thread == 2 {
					err = d.Replicas().Flush()
				}
			})
			return err
		}
		done, err := ranktest.Together(3, 20, pass)
		require.NoError(t, err)
		assert.Positive(t, done)
		require.NoError(t, pass(0))
	})
}
