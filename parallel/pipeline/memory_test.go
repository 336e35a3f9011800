package pipeline

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/nn"
	"github.com/plait-ml/plait/core/op"
)

// wide is a layer that saves some known bytes for its gradient: 8 results of tanh.
func wide() nn.Layer {
	var layers []nn.Layer
	for range 8 {
		layers = append(layers, nn.NewTanh())
	}
	return nn.NewSequential(append(layers, nn.NewLinear(64, 64, nn.LinearOptions{}))...)
}

// TestCase39Peaks compares the most bytes of activations that each device holds with the micro-batches that the schedule lets live.
func TestCase39Peaks(t *testing.T) {
	const p, m, rows = 4, 8, 256
	in64(t, func() {
		const tensor = rows * 64 * 8 // bytes
		for _, name := range Names() {
			chunks, err := Chunks(name, 0)
			require.NoError(t, err)
			var layers []nn.Layer
			for range p * chunks {
				layers = append(layers, wide())
			}
			pipe, err := NewPipeline(nn.NewSequential(layers...), names(p), Options{Chunks: m, Schedule: name, Loss: mse(false)})
			require.NoError(t, err)
			// The target is where the loss is.
			x, target := op.Rand(m*rows, 64), op.ToDevice(op.Rand(m*rows, 64), pipe.Executor().Device(p*chunks-1))
			measure := func() (peaks [p]float64) {
				var before [p]int
				for d := range p {
					dev, err := core.OpenDevice(names(p)[d])
					require.NoError(t, err)
					core.ResetPeak(dev)
					before[d] = core.CategoryUsage(dev, core.Activation).Current
				}
				core.Tidy(func() {
					_, _, err := pipe.Step(x, target)
					require.NoError(t, err)
				})
				for d := range p {
					dev, err := core.OpenDevice(names(p)[d])
					require.NoError(t, err)
					u := core.CategoryUsage(dev, core.Activation)
					peaks[d] = float64(u.Peak-before[d]) / tensor
					if d > 0 {
						assert.Equal(t, before[d], u.Current, "%s leaves memory on device %d", name, d)
					}
				}
				return peaks
			}
			measure() // makes gradients
			for _, q := range nn.Parameters(pipe) {
				q.SetGrad(nil)
			}
			peaks := measure()
			s, err := pipe.Schedule(m)
			require.NoError(t, err)
			predicted, err := s.Simulate(Costs{})
			require.NoError(t, err)
			for d := 1; d < p; d++ { // the first device also has the batch
				// A micro-batch keeps 8 tensors in a stage. What else there is: one that arrived early or a gradient under way, and on
				// the last device the outputs, one by one and joined.
				live, rest := float64(predicted.Live[d]), 5.5
				if s.Devices()[s.Stages()-1] == d {
					rest += 2 * m
				}
				assert.LessOrEqual(t, peaks[d], 8*live+rest, "%s device %d", name, d)
				if !s.Splits() { // between its two halves, a backward pass keeps less
					assert.GreaterOrEqual(t, peaks[d], 8*live, "%s device %d", name, d)
				}
			}
			require.NoError(t, pipe.Release())
		}
	})
}
