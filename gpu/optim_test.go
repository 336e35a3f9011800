package gpu_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op"
	"github.com/plait-ml/plait/core/optim"
	"github.com/plait-ml/plait/gpu"
)

// TestOptimiserSteps checks optimisers with more parameters than one dispatch updates, with sizes that 4 divides and does not
// divide, and some without a gradient.
func TestOptimiserSteps(t *testing.T) {
	const params, steps = 45, 3
	for name, o := range map[string]struct {
		make  func([]*core.Tensor, optim.Hyper) (*optim.Optimizer, error)
		hyper optim.Hyper
	}{
		"SGD":      {optim.NewSGD, optim.Hyper{"lr": 0.1, "momentum": 0.9, "weight_decay": 0.01}},
		"AdamW":    {optim.NewAdamW, optim.Hyper{"lr": 0.1}},
		"AMSGrad":  {optim.NewAdam, optim.Hyper{"lr": 0.1, "amsgrad": 1}},
		"RMSprop":  {optim.NewRMSprop, optim.Hyper{"lr": 0.01, "momentum": 0.5, "centered": 1}},
		"Adadelta": {optim.NewAdadelta, optim.Hyper{"lr": 1}},
	} {
		t.Run(name, func(t *testing.T) {
			core.Tidy(func() {
				x := make([]*core.Tensor, params)
				for i := range x {
					switch {
					case i%9 == 4:
						x[i] = op.Randn(1028)
					case i%9 == 7:
						x[i] = op.Randn(13)
					default:
						x[i] = op.Randn(4 + 4*(i%7))
					}
				}
				compareWithCPU(t, 1e-5, func(x ...*core.Tensor) []*core.Tensor {
					d := x[0].Device()
					var p []*core.Tensor
					for _, v := range x {
						p = append(p, op.Clone(v).SetRequiresGrad(true))
					}
					opt, err := o.make(p, o.hyper)
					require.NoError(t, err)
					for step := range steps {
						for i := range p {
							if i%11 != 10 {
								p[i].SetGrad(op.Mul(x[i], core.Num(float64(step)-0.5)))
							}
						}
						require.NoError(t, d.Synchronize())
						before := countDispatches(d)
						require.NoError(t, opt.Step())
						require.NoError(t, d.Synchronize())
						if step > 0 { // the first step creates the states
							// Parameters of unusual sizes are updated one by one, others together if they are in the same slabs.
							require.Less(t, countDispatches(d)-before, int64(params/2))
						}
					}
					for i := range p {
						p[i] = p[i].Detach()
					}
					return p
				}, x...)
			})
		})
	}
}

// countDispatches returns the number of dispatches of a GPU so far.
func countDispatches(d core.Device) int64 {
	if g, ok := d.(*gpu.Device); ok {
		return int64(g.Traffic().Dispatches)
	}
	return 0
}
