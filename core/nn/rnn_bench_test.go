package nn_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/autograd"
	"github.com/plait-ml/plait/core/nn"
	"github.com/plait-ml/plait/core/op"
)

// BenchmarkRecurrentStep is a training step, without the optimiser's, of two layers of 128 features over 64 steps of 16
// sequences.
func BenchmarkRecurrentStep(b *testing.B) {
	const steps, n, features = 64, 16, 128
	for name, m := range map[string]nn.Layer{
		"lstm": nn.NewLSTM(features, features, nn.RNNOptions{Layers: 2}),
		"gru":  nn.NewGRU(features, features, nn.RNNOptions{Layers: 2}),
	} {
		b.Run(name, func(b *testing.B) {
			x := op.Randn(steps, n, features)
			for b.Loop() {
				core.Tidy(func() {
					require.NoError(b, autograd.Backward(op.Mean(op.Square(m.Forward(x)), nil, false)))
					for _, p := range nn.Parameters(m) {
						p.SetGrad(nil)
					}
				})
				require.NoError(b, x.Device().Synchronize())
			}
		})
	}
}
