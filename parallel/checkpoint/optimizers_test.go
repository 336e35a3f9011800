package checkpoint_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/autograd"
	"github.com/plait-ml/plait/core/coretest"
	"github.com/plait-ml/plait/core/nn"
	"github.com/plait-ml/plait/core/op"
	"github.com/plait-ml/plait/core/optim"
	"github.com/plait-ml/plait/parallel/checkpoint"
)

// Training continues bit for bit after a load, whatever state the optimiser has.
func TestEveryOptimizerGoesOn(t *testing.T) {
	for i, algorithm := range optim.Algorithms() {
		if !coretest.Drawn(i) {
			continue
		}
		for _, dtype := range []core.DType{core.Float32, core.BFloat16} {
			if algorithm == "lbfgs" && dtype != core.Float32 {
				continue
			}
			dir := t.TempDir()
			start := func(seed uint64) (*checkpoint.Training, func(steps int) []float64) {
				core.ManualSeed(seed)
				bias := nn.LinearOptions{NoBias: true} // Muon needs matrices
				m := nn.NewSequential(nn.NewLinear(3, 5, bias), nn.NewTanh(), nn.NewLinear(5, 2, bias))
				require.NoError(t, nn.ToDType(m, dtype))
				o, err := optim.New(algorithm, optim.Hyper{"lr": 0.05}, optim.Params{Tensors: nn.Parameters(m)})
				require.NoError(t, err, algorithm)
				number := 0
				training := &checkpoint.Training{Model: m, Optimizer: o, Values: map[string]any{"step": &number}}
				return training, func(steps int) (bits []float64) {
					for range steps {
						number++
						x := op.To(op.Add(op.Sin(op.Reshape(op.Arange(nil, core.Num(12), nil, op.TensorOptions{}), 4, 3)), core.Num(float64(number)/10)), dtype)
						_, err := o.StepWith(func() (*core.Tensor, error) {
							o.ZeroGrad()
							l := square(m.Forward(x), nil)
							err := autograd.Backward(l)
							for _, p := range nn.Parameters(m) {
								if algorithm == "sparse_adam" { // which takes no others
									p.SetGrad(op.ToSparse(p.Grad(), 1))
								}
							}
							return l, err
						})
						require.NoError(t, err, algorithm)
					}
					for _, p := range nn.Parameters(m) {
						v, err := core.Values[float64](op.To(p.Detach(), core.Float64))
						require.NoError(t, err)
						bits = append(bits, v...)
					}
					return bits
				}
			}
			first, train := start(1)
			train(4)
			require.NoError(t, first.Save(dir, nil), algorithm)
			want := train(3)
			for _, before := range []int{0, 2} { // a new optimiser, and one after two steps
				second, again := start(2)
				again(before)
				require.NoError(t, second.Load(dir, nil), algorithm)
				require.True(t, slices.Equal(want, again(3)), "%s of %s after %d steps", algorithm, dtype, before)
			}
		}
	}
}
