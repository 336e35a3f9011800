package pipeline

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
)

func TestCase40And41And44Parity(t *testing.T) {
	in64(t, func() {
		for _, name := range Names() {
			for _, sum := range []bool{false, true} {
				for _, devices := range []int{1, 2, 3} {
					if testing.Short() && devices != 2 {
						continue
					}
					model := mlp(6, 4, 0)
					p, err := NewPipeline(model, names(devices), Options{Chunks: 4, Schedule: name, Loss: mse(sum), Sum: sum})
					require.NoError(t, err)
					// 5 and 10 do not divide by 4; 3 are fewer than the chunks; the shape changes from step to step.
					for _, n := range []int{8, 10, 5, 3, 1} {
						what := fmt.Sprintf("%s on %d devices, %d samples, sum %v", name, devices, n, sum)
						x, target := op.Rand(n, 4), op.Rand(n, 4)
						wantLoss, wantOut := whole(t, model, x, target, mse(sum))
						want := grads(t, model)
						loss, out, err := p.Step(x, target)
						require.NoError(t, err, what)
						got := grads(t, p)
						assert.InDeltaSlice(t, vals(t, wantLoss), vals(t, loss), 1e-12, what)
						assert.InDeltaSlice(t, vals(t, wantOut), vals(t, out), 1e-12, what)
						near(t, want, got, what)

						loss, out, err = p.Evaluate(x, target)
						require.NoError(t, err, what)
						assert.InDeltaSlice(t, vals(t, wantLoss), vals(t, loss), 1e-12, what)
						assert.InDeltaSlice(t, vals(t, wantOut), vals(t, out), 1e-12, what)
						assert.Empty(t, grads(t, p), what)
					}
					require.NoError(t, p.Release())
				}
			}
		}
	})
}

// TestCase40SameBitsAsALoop compares with a plain loop over micro-batches on one device, with the same dropout.
func TestCase40SameBitsAsALoop(t *testing.T) {
	in64(t, func() {
		for _, name := range Names() {
			model := mlp(6, 4, 0.4)
			x, target := op.Rand(10, 4), op.Rand(10, 4)
			sizes := Sizes(10, 4)
			weights := Weights(sizes, false)
			for range 2 { // other masks in each step
				seed, offset := core.CurrentContext().Generator(x.Device()).State()
				forks, err := Forks(4)
				require.NoError(t, err)
				at := 0
				for i, n := range sizes {
					s, _ := forks[i].State()
					ctx := core.CurrentContext().Worker(s)
					core.WithContext(ctx, func() {
						l := mse(false)(nn.Call(model, op.Narrow(x, 0, at, n)), op.Narrow(target, 0, at, n))
						w := core.Scalar(weights[i])
						require.NoError(t, autograd.BackwardWith([]*core.Tensor{l}, []*core.Tensor{w}, autograd.Options{}))
					})
					ctx.Free()
					at += n
				}
				want := grads(t, model)
				after, moved := core.CurrentContext().Generator(x.Device()).State()
				core.CurrentContext().Generator(x.Device()).SetState(seed, offset)

				p, err := NewPipeline(model, names(2), Options{Chunks: 4, Schedule: name, Loss: mse(false)})
				require.NoError(t, err)
				_, _, err = p.Step(x, target)
				require.NoError(t, err)
				assert.Equal(t, want, grads(t, p), name)
				s, o := core.CurrentContext().Generator(x.Device()).State()
				assert.Equal(t, []uint64{after, moved}, []uint64{s, o})
				require.NoError(t, p.Release())
			}
		}
	})
}

func TestGradientsAddUpOverSteps(t *testing.T) {
	in64(t, func() {
		model := mlp(4, 4, 0)
		x, target := op.Rand(6, 4), op.Rand(6, 4)
		for range 2 {
			whole(t, model, x, target, mse(false))
		}
		want := grads(t, model)
		p, err := NewPipeline(model, names(2), Options{Chunks: 3, Loss: mse(false)})
		require.NoError(t, err)
		for range 2 {
			_, _, err = p.Step(x, target)
			require.NoError(t, err)
		}
		near(t, want, grads(t, p))
		require.NoError(t, p.Release())
	})
}

// layerFunc is a layer without tensors of its own.
type layerFunc struct {
	nn.Base
	fn func(x *core.Tensor) *core.Tensor
}

func (l *layerFunc) Forward(x *core.Tensor) *core.Tensor { return l.fn(x) }

// projection is a layer that multiplies with a weight that it may share.
type projection struct {
	nn.Base
	Weight *core.Tensor `plait:"param"`
}

func (p *projection) Forward(x *core.Tensor) *core.Tensor { return op.Linear(x, p.Weight, nil) }

// TestCase42TiedWeights has a weight in the first and the last stage.
func TestCase42TiedWeights(t *testing.T) {
	in64(t, func() {
		for _, name := range Names() {
			w := op.Rand(4, 4).Keep()
			w.SetRequiresGrad(true)
			middle := mlp(3, 4, 0)
			model := nn.NewSequential(&projection{Weight: w}, middle.Layers[0], middle.Layers[1], middle.Layers[2], &projection{Weight: w})
			x, target := op.Rand(6, 4), op.Rand(6, 4)
			p, err := NewPipeline(model, names(2), Options{Chunks: 3, Schedule: name, Loss: mse(false)})
			require.NoError(t, err)
			require.Equal(t, len(nn.Parameters(model)), len(nn.Parameters(p)))
			for range 3 {
				wantLoss, _ := whole(t, model, x, target, mse(false))
				want := grads(t, model)
				loss, _, err := p.Step(x, target)
				require.NoError(t, err)
				assert.InDeltaSlice(t, vals(t, wantLoss), vals(t, loss), 1e-12)
				got := grads(t, p)
				near(t, want, got, name)
				core.NoGrad(func() { // the copy follows
					for i, n := range nn.NamedParameters(p) {
						op.MulInPlace(n.Tensor, core.Num(0.9))
						if q := nn.NamedParameters(model)[i].Tensor; q != n.Tensor {
							op.MulInPlace(q, core.Num(0.9))
						}
					}
				})
			}
			require.NoError(t, p.Release())
		}
	})
}

// TestCase42AfterAFailure makes a step fail after the copies of a tied weight got gradients. The next step must not use these gradients.
func TestCase42AfterAFailure(t *testing.T) {
	in64(t, func() {
		w := op.Rand(4, 4).Keep()
		w.SetRequiresGrad(true)
		armed := false
		first := nn.NewSequential(nn.NewLinear(4, 4, nn.LinearOptions{}), &layerFunc{fn: func(x *core.Tensor) *core.Tensor {
			if armed {
				return faulty(x, "backward")
			}
			return x
		}})
		p, err := NewPipeline(nn.NewSequential(first, &projection{Weight: w}, nn.NewTanh(), &projection{Weight: w}), names(2), Options{Chunks: 2, Split: []int{2, 2}, Loss: mse(false)})
		require.NoError(t, err)
		x, target := op.Rand(6, 4), op.Rand(6, 4)
		var want map[string][]float64
		for _, armed = range []bool{false, true, false} {
			_, _, err := p.Step(x, target)
			if armed {
				require.ErrorContains(t, err, "boom")
				grads(t, p)
				continue
			}
			require.NoError(t, err)
			if got := grads(t, p); want == nil {
				want = got
			} else {
				require.Equal(t, want, got)
			}
		}
		require.NoError(t, p.Release())
	})
}

func TestNamesAreTheModels(t *testing.T) {
	in64(t, func() {
		model := mlp(4, 4, 0)
		p, err := NewPipeline(model, names(2), Options{Chunks: 2})
		require.NoError(t, err)
		var want, got []string
		for _, n := range nn.NamedParameters(model) {
			want = append(want, n.Name)
		}
		for _, n := range nn.NamedParameters(p) {
			got = append(got, n.Name)
		}
		assert.Equal(t, want, got)
		require.NoError(t, p.Release())
	})
}

// TestInputsGetGradients has the gradient of a batch that is on another device than the first stage.
func TestInputsGetGradients(t *testing.T) {
	in64(t, func() {
		for _, name := range Names() {
			model := mlp(6, 4, 0)
			x, target := op.Rand(7, 4).Keep().SetRequiresGrad(true), op.Rand(7, 4)
			whole(t, model, x, target, mse(false))
			want := vals(t, x.Grad())
			for _, devices := range [][]string{{"cpu:0", "cpu:1"}, {"cpu:1", "cpu:0"}} {
				x.SetGrad(nil)
				p, err := NewPipeline(model, devices, Options{Chunks: 3, Schedule: name, Loss: mse(false)})
				require.NoError(t, err)
				_, _, err = p.Step(x, target)
				require.NoError(t, err)
				assert.InDeltaSlice(t, want, vals(t, x.Grad()), 1e-12, name)
				grads(t, p)
				require.NoError(t, p.Release())
			}
			x.Release()
		}
	})
}

// TestCase45Replicas averages the gradients of two pipelines, each with half of the batch, in one call.
func TestCase45Replicas(t *testing.T) {
	in64(t, func() {
		model := mlp(4, 4, 0)
		x, target := op.Rand(8, 4), op.Rand(8, 4)
		whole(t, model, x, target, mse(false))
		want := grads(t, model)
		a, err := NewPipeline(model, []string{"cpu:0", "cpu:1"}, Options{Chunks: 2, Loss: mse(false)})
		require.NoError(t, err)
		b, err := NewPipeline(model, []string{"cpu:2", "cpu:3"}, Options{Chunks: 2, Loss: mse(false)})
		require.NoError(t, err)
		var lists [][]*core.Tensor
		for i, p := range []*Pipeline{a, b} {
			_, _, err := p.Step(op.Narrow(x, 0, 4*i, 4), op.Narrow(target, 0, 4*i, 4))
			require.NoError(t, err)
			var list []*core.Tensor
			for _, q := range nn.Parameters(p) {
				list = append(list, q.Grad())
			}
			lists = append(lists, list)
		}
		require.NoError(t, collective.AllReduceSyncMany(lists, collective.Avg))
		near(t, want, grads(t, a))
		near(t, want, grads(t, b))
		require.NoError(t, a.Release())
		require.NoError(t, b.Release())
	})
}

// TestScaledGradients multiplies gradients, and not the loss, for small types.
func TestScaledGradients(t *testing.T) {
	in64(t, func() {
		p, err := NewPipeline(mlp(2, 4, 0), names(2), Options{Chunks: 3, Loss: mse(false)})
		require.NoError(t, err)
		x, target := op.Rand(5, 4), op.Rand(5, 4)
		loss, _, err := p.Step(x, target)
		require.NoError(t, err)
		want := grads(t, p)
		for _, v := range want {
			for i := range v {
				v[i] *= 64
			}
		}
		sizes := Sizes(5, 3)
		b := Batch{Train: true, Loss: true, Outputs: true, Weights: Weights(sizes, false), Scale: 64}
		b.Schedule, err = p.Schedule(3)
		require.NoError(t, err)
		var targets []*core.Tensor
		for i, n := range sizes {
			b.Inputs = append(b.Inputs, []*core.Tensor{op.Narrow(x, 0, 2*i, n)})
			targets = append(targets, op.ToDevice(op.Narrow(target, 0, 2*i, n), p.executor.Device(1)))
		}
		again, _, err := p.runStep(b, targets)
		require.NoError(t, err)
		assert.Equal(t, vals(t, loss), vals(t, again))
		assert.Equal(t, want, grads(t, p))
		require.NoError(t, p.Release())
	})
}

func TestCase43BadInput(t *testing.T) {
	in64(t, func() {
		fails := func(want string, devices int, o Options) {
			t.Helper()
			_, err := NewPipeline(mlp(3, 4, 0), names(devices), o)
			assert.ErrorContains(t, err, want)
		}
		fails("got 3 layers for 4 stages: a stage needs at least one", 4, Options{Chunks: 4})
		fails("got 0 micro-batches", 2, Options{})
		fails("1f1b needs at least as many micro-batches as devices, got 1 for 2", 2, Options{Chunks: 1})
		fails(`got "2f2b", want one of`, 2, Options{Chunks: 2, Schedule: "2f2b"})
		fails("got a split of [1 1] layers, want 2 stages that make up the 3 layers", 2, Options{Chunks: 2, Split: []int{1, 1}})
		fails("got no devices", 0, Options{Chunks: 2})
		fails("1f1b has 1 stages on each device, got 2", 2, Options{Chunks: 2, Stages: 2})
		bad, err := Parse("0F0 0B0 0F1 0B1\n1F0 1F1 1B0 1B1")
		require.NoError(t, err)
		fails("it deadlocks: device 0 waits at 0B0 for 1B0; device 1 waits at 1F1 for 0F1", 2, Options{Chunks: 2, Custom: bad})

		x, target := op.Rand(4, 4), op.Rand(4, 4)
		p, err := NewPipeline(mlp(3, 4, 0), names(2), Options{Chunks: 2, Loss: func(y, _ *core.Tensor) *core.Tensor { return y }})
		require.NoError(t, err)
		_, _, err = p.Step(x, target)
		assert.ErrorContains(t, err, "stage 1 on cpu:1, forward of micro-batch 0: loss: got a loss of shape [2 4], want a scalar")
		core.NoGrad(func() { _, _, err = p.Step(x, target) })
		assert.ErrorContains(t, err, "under no_grad")
		_, _, err = p.Step(x, op.Rand(3, 4))
		assert.ErrorContains(t, err, "got a target")
		_, _, err = p.Step(op.Rand(0, 4), target)
		assert.ErrorContains(t, err, "at least one sample")
		require.NoError(t, p.Release())

		model := nn.NewSequential(nn.NewLinear(4, 5, nn.LinearOptions{}), nn.NewLinear(7, 4, nn.LinearOptions{}))
		p, err = NewPipeline(model, names(2), Options{Chunks: 2, Loss: mse(false)})
		require.NoError(t, err)
		_, _, err = p.Step(x, target)
		assert.ErrorContains(t, err, "stage 1 on cpu:1, forward of micro-batch 0: its input, the output of stage 0, is float64[2 5]: linear: inner dimensions differ, got input [2 5] and weight [4 7]")
		assert.Empty(t, grads(t, p))
		require.NoError(t, p.Release())
	})
}
