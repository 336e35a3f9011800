package pipeline

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op"
	"github.com/plait-ml/plait/parallel/internal/ranktest"
)

// Threads that use one pipeline at once get an error, and afterwards it works as before.
func TestThreadsWithOnePipeline(t *testing.T) {
	in64(t, func() {
		p, err := NewPipeline(mlp(4, 3, 0), names(2), Options{Chunks: 2, Loss: mse(false)})
		require.NoError(t, err)
		pass := func(thread int) (err error) {
			core.Tidy(func() {
				x := op.Ones(4, 3)
				if thread == 2 {
					p.Measured()
					_, _, err = p.Evaluate(x, x)
					return
				}
				_, _, err = p.Step(x, op.ZerosLike(x, op.TensorOptions{}))
			})
			return err
		}
		done, err := ranktest.Together(3, 20, pass)
		require.NoError(t, err)
		assert.Positive(t, done)
		require.NoError(t, pass(0))
		require.NoError(t, p.Release())
	})
}
