package tests_go

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/autograd"
	"github.com/plait-ml/plait/core/nn"
	"github.com/plait-ml/plait/core/op"
	"github.com/plait-ml/plait/parallel/collective"
	"github.com/plait-ml/plait/parallel/pipeline"
)

// stagings are where the stages of a pipeline may be: on two GPUs, all on one, and on a GPU and a CPU.
var stagings = [][]string{{"gpu:0", "gpu:1"}, {"gpu:0", "gpu:0"}, {"gpu:0", "cpu:1"}, {"cpu:1", "gpu:0"}}

// head is a layer that multiplies with the table of an embedding.
type head struct {
	nn.Base
	Weight *core.Tensor `plait:"param"`
}

func (h *head) Forward(x *core.Tensor) *core.Tensor { return op.Linear(x, h.Weight, nil) }

// language returns a small model over words, with a table that its first and last layers share.
func language() *nn.Sequential {
	core.ManualSeed(11)
	table := nn.NewEmbedding(words, features, nn.EmbeddingOptions{})
	layers := []nn.Layer{table}
	for range 4 {
		layers = append(layers, nn.NewSequential(nn.NewLayerNorm([]int{features}, nn.NormOptions{}), nn.NewLinear(features, features, nn.LinearOptions{}), nn.NewGELU("none")))
	}
	m := nn.NewSequential(append(layers, &head{Weight: table.Weight})...)
	for _, p := range nn.Parameters(m) {
		p.Keep()
	}
	return m
}

const words = 9

func crossEntropy(scores, target *core.Tensor) *core.Tensor {
	return op.CrossEntropy(op.Reshape(scores, -1, words), op.Reshape(target, -1), op.CrossEntropyOptions{})
}

// sentences returns n rows of words.
func sentences(n int) (x, y *core.Tensor) {
	var a, b []int64
	for i := range 5 * n {
		a, b = append(a, int64(i*7%words)), append(b, int64(i*5%words))
	}
	return core.FromSlice(a, n, 5), core.FromSlice(b, n, 5)
}

func gradients(t *testing.T, m nn.Module) (all []float32) {
	t.Helper()
	for _, p := range nn.Parameters(m) {
		v, err := core.Values[float32](p.Grad())
		require.NoError(t, err)
		all = append(all, v...)
		p.SetGrad(nil)
	}
	return all
}

// 40. to 42. on GPUs: loss, outputs and every gradient are those of one CPU device, for sizes that divide and sizes that do not,
// with a table that the first and the last stage share. What happened when is measured there too.
func TestCase40To42OnGPUs(t *testing.T) {
	needGPU(t)
	for _, name := range pipeline.Names() {
		for _, devices := range stagings {
			t.Run(fmt.Sprint(name, devices), func(t *testing.T) {
				core.Tidy(func() {
					whole := language()
					p, err := pipeline.NewPipeline(language(), devices, pipeline.Options{Chunks: 4, Schedule: name, Loss: crossEntropy})
					require.NoError(t, err)
					for _, n := range []int{8, 5, 2} {
						x, y := sentences(n)
						out := nn.Call(whole, x)
						l := crossEntropy(out, y)
						require.NoError(t, autograd.Backward(l))
						loss, got, err := p.Step(x, y)
						require.NoError(t, err)
						require.InDeltaSlice(t, numbers(t, l), numbers(t, loss), 1e-5)
						require.InDeltaSlice(t, numbers(t, out), numbers(t, got), 1e-5)
						require.InDeltaSlice(t, gradients(t, whole), gradients(t, p), 1e-5)
						loss, _, err = p.Evaluate(x, y)
						require.NoError(t, err)
						require.InDeltaSlice(t, numbers(t, l), numbers(t, loss), 1e-5)
					}
					x, y := sentences(4)
					_, _, err = p.Step(x, y)
					require.NoError(t, err)
					s, err := p.Schedule(4)
					require.NoError(t, err)
					for d, row := range p.Measured().Spans {
						did := map[pipeline.Action]bool{}
						for _, x := range row {
							did[x.Action] = true
							assert.LessOrEqual(t, x.Start, x.End)
						}
						assert.Len(t, row, len(s.Rows[d]))
						for k, a := range s.Rows[d] {
							assert.True(t, did[a], "%v on device %d", a, d)
							if k > 0 {
								assert.LessOrEqual(t, row[k-1].End, row[k].Start)
							}
						}
					}
					require.NoError(t, p.Release())
				})
				require.NoError(t, core.Synchronize())
			})
		}
	}
}

func numbers(t *testing.T, x *core.Tensor) []float32 {
	t.Helper()
	v, err := core.Values[float32](x)
	require.NoError(t, err)
	return v
}

// 39. on GPUs: the counters find as many micro-batches alive on a device as the schedule lets live.
func TestCase39PeaksOnGPUs(t *testing.T) {
	needGPU(t)
	const m, rows, width, kept = 6, 64, 32, 8
	const tensor = rows * width * 4 // bytes
	for _, name := range pipeline.Names() {
		core.Tidy(func() {
			chunks, err := pipeline.Chunks(name, 0)
			require.NoError(t, err)
			var layers []nn.Layer
			for range 2 * chunks {
				var list []nn.Layer
				for range kept { // each saves its result
					list = append(list, nn.NewTanh())
				}
				layers = append(layers, nn.NewSequential(append(list, nn.NewLinear(width, width, nn.LinearOptions{}))...))
			}
			p, err := pipeline.NewPipeline(nn.NewSequential(layers...), []string{"gpu:0", "gpu:1"}, pipeline.Options{Chunks: m, Schedule: name,
				Loss: func(y, _ *core.Tensor) *core.Tensor { return op.Mean(y, nil, false) }})
			require.NoError(t, err)
			x := op.Rand(m*rows, width).SetRequiresGrad(true) // or the first stage would save less
			y := op.Rand(m * rows)
			step := func() {
				core.Tidy(func() {
					_, _, err := p.Step(x, y)
					require.NoError(t, err)
				})
			}
			step() // makes gradients
			for _, q := range nn.Parameters(p) {
				q.SetGrad(nil)
			}
			// The device that does not have the last stage, whose outputs are kept.
			s, err := p.Schedule(m)
			require.NoError(t, err)
			at := 1 - s.Devices()[s.Stages()-1]
			dev := p.Executor().Device(at)
			core.ResetPeak(dev)
			before := core.CategoryUsage(dev, core.Activation).Current
			step()
			u := core.CategoryUsage(dev, core.Activation)
			assert.Equal(t, before, u.Current, name)
			predicted, err := s.Simulate(pipeline.Costs{})
			require.NoError(t, err)
			peak, live := float64(u.Peak-before)/tensor, kept*float64(predicted.Live[at])
			assert.LessOrEqual(t, peak, live+5.5, "%s on %v", name, dev)
			if !s.Splits() {
				assert.GreaterOrEqual(t, peak, live, "%s on %v", name, dev)
			}
			require.NoError(t, p.Release())
		})
	}
}

// A fault that a GPU finds only when it computes names the stage and the micro-batch, also where a later stage on another GPU
// learns of it; the pipeline works again afterwards.
func TestFaultsOfStagesOnGPUs(t *testing.T) {
	needGPU(t)
	first, err := core.OpenDevice("gpu:0")
	require.NoError(t, err)
	for _, name := range []string{"gpipe", "1f1b", "zb-h1"} {
		for _, devices := range stagings {
			if devices[0] != "gpu:0" {
				continue
			}
			core.Tidy(func() {
				what := fmt.Sprint(name, devices)
				p, err := pipeline.NewPipeline(language(), devices, pipeline.Options{Chunks: 4, Schedule: name, Loss: crossEntropy})
				require.NoError(t, err)
				x, y := sentences(4)
				bad := op.Add(x, core.FromSlice([]int64{0, 0, words, 0}, 4, 1))
				loss, _, err := p.Step(bad, y)
				if err == nil {
					_, err = loss.Item()
				}
				assert.ErrorContains(t, err, fmt.Sprintf("stage 0 on %v, forward of micro-batch 2: embedding: ", first), what)
				for _, q := range nn.Parameters(p) {
					q.SetGrad(nil)
				}
				for i := range 2 {
					_ = p.Executor().Device(i).Synchronize() // takes the error
				}
				loss, _, err = p.Step(x, y)
				require.NoError(t, err, what)
				_, err = loss.Item()
				require.NoError(t, err, what)
				require.NoError(t, p.Release())
			})
		}
	}
}

// 45. on GPUs: replicas of a pipeline, whose gradients one call joins.
func TestCase45OnGPUs(t *testing.T) {
	needGPU(t)
	core.Tidy(func() {
		whole := language()
		x, y := sentences(8)
		require.NoError(t, autograd.Backward(crossEntropy(nn.Call(whole, x), y)))
		want := gradients(t, whole)
		var pipes []*pipeline.Pipeline
		var lists [][]*core.Tensor
		for i, devices := range [][]string{{"gpu:0", "gpu:1"}, {"gpu:1", "cpu:1"}} {
			p, err := pipeline.NewPipeline(language(), devices, pipeline.Options{Chunks: 2, Loss: crossEntropy})
			require.NoError(t, err)
			_, _, err = p.Step(op.Narrow(x, 0, 4*i, 4), op.Narrow(y, 0, 4*i, 4))
			require.NoError(t, err)
			var list []*core.Tensor
			for _, q := range nn.Parameters(p) {
				list = append(list, q.Grad())
			}
			pipes, lists = append(pipes, p), append(lists, list)
		}
		require.NoError(t, collective.AllReduceSyncMany(lists, collective.Avg))
		for _, p := range pipes {
			require.InDeltaSlice(t, want, gradients(t, p), 1e-5)
			require.NoError(t, p.Release())
		}
	})
}
