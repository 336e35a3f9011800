package pipeline

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/coretest"
	"github.com/plait-ml/plait/core/nn"
	"github.com/plait-ml/plait/core/op"
)

// A step of any schedule that runs out of memory, at whatever allocation, says so and changes no parameter; the next one is made.
func TestOutOfMemory(t *testing.T) {
	in64(t, func() {
		for i, name := range Names() {
			if testing.Short() && i > 0 {
				break
			}
			p, err := NewPipeline(mlp(4, 3, 0), names(2), Options{Chunks: 3, Schedule: name, Loss: mse(false)})
			require.NoError(t, err)
			x, target := op.Rand(5, 3), op.Rand(5, 3)
			dev, err := core.OpenDevice("cpu:1")
			require.NoError(t, err)
			check := coretest.Unchanged(t, x.Device(), -1, nn.Parameters(p)...)
			coretest.EachAllocation(t, func() (err error) {
				core.Tidy(func() {
					var loss *core.Tensor
					if loss, _, err = p.Step(x, target); err == nil {
						_, err = loss.Item()
					}
				})
				for _, q := range nn.Parameters(p) {
					if g := q.Grad(); g != nil && err == nil {
						err = g.Wait()
					}
				}
				return err
			}, func() {
				_ = dev.Synchronize()
				nn.ZeroGrad(p)
				check()
			}, 0)
			require.NoError(t, p.Release())
		}
	})
}
