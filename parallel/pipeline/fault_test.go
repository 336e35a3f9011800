package pipeline

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/nn"
	"github.com/plait-ml/plait/core/op"
)

// TestFaults makes each stage fail in each phase: when it is called, while its device computes, and in its backward pass. The
// pipeline works again afterwards.
func TestFaults(t *testing.T) {
	in64(t, func() {
		for _, name := range []string{"gpipe", "1f1b", "zb-h1"} {
			for stage := range 3 {
				for _, phase := range []string{"call", "panic", "run", "backward"} {
					calls, armed := 0, true
					var layers []nn.Layer
					for i := range 3 {
						inner := nn.NewLinear(4, 4, nn.LinearOptions{})
						layers = append(layers, nn.NewSequential(inner, &layerFunc{fn: func(x *core.Tensor) *core.Tensor {
							if i != stage {
								return x
							}
							if calls++; calls != 3 || !armed {
								return x
							}
							return faulty(x, phase)
						}}))
					}
					p, err := NewPipeline(nn.NewSequential(layers...), names(3), Options{Chunks: 5, Schedule: name, Loss: mse(false)})
					require.NoError(t, err)
					x, target := op.Rand(5, 4), op.Rand(5, 4)
					loss, _, err := p.Step(x, target)
					if err == nil { // found while the device computes
						_, err = loss.Item()
					}
					direction := "forward"
					if phase == "backward" {
						direction = "backward"
						if name == "zb-h1" {
							direction = "input gradient"
							if stage == 0 {
								direction = "weight gradient"
							}
						}
					}
					what := fmt.Sprintf("%s, %s in stage %d", name, phase, stage)
					assert.ErrorContains(t, err, fmt.Sprintf("stage %d on cpu:%d, %s of micro-batch 2: ", stage, stage, direction), what)
					assert.ErrorContains(t, err, "boom", what)
					armed = false
					for _, q := range nn.Parameters(p) {
						q.SetGrad(nil)
					}
					for d := range 3 {
						dev, err := core.OpenDevice(names(3)[d])
						require.NoError(t, err)
						_ = dev.Synchronize() // takes the error
					}
					loss, _, err = p.Step(x, target)
					require.NoError(t, err, what)
					_, err = loss.Item()
					require.NoError(t, err, what)
					require.NoError(t, p.Release())
				}
			}
		}
	})
}

// faulty fails in the given phase.
func faulty(x *core.Tensor, phase string) *core.Tensor {
	boom := core.Errorf(core.IndexError, "gather", "boom")
	switch phase {
	case "call":
		return core.ErrorTensor(boom)
	case "panic":
		panic("boom")
	case "run":
		y := op.Mul(x, core.Num(1))
		c := core.CurrentContext().Stream(x.Device()).Begin(-1, "gather")
		c.Out(y)
		c.Fn = func() error { return boom }
		core.CurrentContext().Stream(x.Device()).Launch(c)
		return y
	}
	n := core.NewNode(core.CurrentMode(), "boom", func(ctx *core.BackwardContext) { ctx.Fail(boom) }, x)
	y := x.Detach()
	n.Attach(y, 0)
	n.Release()
	return y
}
