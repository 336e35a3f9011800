package parallel

import (
	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/autograd"
	"github.com/plait-ml/plait/core/nn"
	"github.com/plait-ml/plait/core/op"
	"github.com/plait-ml/plait/core/optim"
	"github.com/plait-ml/plait/parallel/fsdp"
	"github.com/plait-ml/plait/parallel/tensor"
)

// A Model is a model that [Parallelize] has laid over the ranks of a mesh. Its tensors have the names of the whole model; in a pipeline a rank
// has those of its stages.
type Model struct {
	nn.Base
	Module nn.Layer `plait:"inline"`
	layout *layout
}

// Forward returns the model's output, a whole tensor, for this rank's part of a batch. Ranks along the axes of the pipeline and of divided
// layers give the same part. With a pipeline the output comes to all its ranks, without gradients: [Model.Step] trains.
func (m *Model) Forward(x *core.Tensor) *core.Tensor {
	l := m.layout
	if l.stages != nil {
		var y *core.Tensor
		var err error
		core.NoGrad(func() { _, y, err = l.stepStages(x, nil, false, 1) })
		if err != nil {
			return core.ErrorTensor(err)
		}
		return y
	}
	var y *core.Tensor
	if err := l.running(false, func() error {
		if y = whole(l.call(m.Module, x)); l.tp != nil {
			y = tensor.PassOutput(l.tp, y)
		}
		return y.Err()
	}); err != nil {
		return core.ErrorTensor(err)
	}
	return y
}

// Step runs forward and backward on this rank's part of a batch, and returns its loss. Gradients are averaged over the ranks along the axes
// of data. The scores of a vocabulary that is divided are never gathered.
func (m *Model) Step(x, target *core.Tensor) (*core.Tensor, error) { return m.step(x, target, 1) }

// StepScaled is [Model.Step] with gradients that are multiplied by the factor of s, for [Model.Unscale].
func (m *Model) StepScaled(s *optim.GradScaler, x, target *core.Tensor) (*core.Tensor, error) {
	return m.step(x, target, s.Scale)
}

func (m *Model) step(x, target *core.Tensor, scale float64) (loss *core.Tensor, err error) {
	l := m.layout
	if l.options.Loss == nil {
		return nil, core.Errorf(core.StateError, "step", "there is no loss: give Options.Loss to Parallelize")
	}
	if l.stages != nil {
		loss, _, err = l.stepStages(x, target, true, scale)
		return loss, err
	}
	out := core.RunScope(func() []*core.Tensor {
		err = l.inStep(func() error {
			return l.running(false, func() error {
				if loss = whole(l.options.Loss(l.call(m.Module, x), target)); l.tp != nil {
					loss = tensor.PassOutput(l.tp, loss)
				}
				scaled := loss
				if scale != 1 {
					scaled = op.Mul(loss, core.Num(scale))
				}
				return autograd.Backward(scaled)
			})
		})
		if err != nil {
			return nil
		}
		return []*core.Tensor{loss.Detach()}
	})
	if err != nil {
		return nil, err
	}
	return out[0], nil
}

// Unscale divides gradients by the factor of s, on behalf of an optimiser of this model's parameters, after [Model.StepScaled]. The ranks agree
// whether all gradients are finite. Every rank calls it.
func (m *Model) Unscale(s *optim.GradScaler, o *optim.Optimizer) error {
	if err := s.Unscale(o, nn.Parameters(m)); err != nil {
		return err
	}
	if m.layout.stages == nil {
		return nil
	}
	g := m.layout.stages.group
	var err error
	core.NoGrad(func() {
		core.Tidy(func() {
			d := core.Float32
			found := op.Full([]int{}, core.Num(0), op.TensorOptions{DType: &d, Device: m.layout.stages.device})
			for _, f := range s.Found(o) {
				found = op.Maximum(found, op.ToDevice(f, m.layout.stages.device))
			}
			found = op.Clone(found)
			if err = allReduce(g.For("whether a GradScaler steps"), found, true); err == nil {
				s.FoundElsewhere(o, found)
			}
		})
	})
	return err
}

// ClipGradNorm scales the gradients so that the norm of the whole model's is at most maxNorm, and returns what it was. Every rank calls it.
func (m *Model) ClipGradNorm(maxNorm float64, o optim.ClipOptions) *core.Tensor {
	l := m.layout
	params := nn.Parameters(m)
	var units []*fsdp.Unit
	for _, f := range l.units {
		units = append(units, f.Tree().Units()...)
	}
	total := core.RunScope(func() []*core.Tensor {
		if l.stages != nil {
			return []*core.Tensor{l.stages.gradNorm(units, params, o)}
		}
		return []*core.Tensor{fsdp.GradNorm(units, params, o)}
	})[0]
	if total.Err() != nil {
		return total
	}
	if err := optim.ClipGradsWithNorm(params, maxNorm, total); err != nil {
		return core.ErrorTensor(err)
	}
	return total
}

// NoSync runs fn, in which full gradients accumulate on each rank, and the next step outside reduces them.
func (m *Model) NoSync(fn func() error) error {
	l := m.layout
	defer func(before bool) { l.unsync = before }(l.unsync)
	l.unsync = true
	for _, f := range l.units {
		inner := fn
		fn = func() error { return f.NoSync(inner) }
	}
	return fn()
}

// DataParallelSize returns the number of parts of a batch.
func (m *Model) DataParallelSize() int { n, _ := m.layout.data(); return n }

// DataParallelRank returns the number of this rank's part of a batch.
func (m *Model) DataParallelRank() int { _, r := m.layout.data(); return r }

// Close ends the layout, after the last step. The model's tensors stay parts.
func (m *Model) Close() error { return m.layout.Close() }

func (l *layout) data() (size, rank int) {
	size = 1
	for _, name := range l.axes.Data() {
		i, err := l.mesh.Axis(name)
		if err != nil {
			return 1, 0
		}
		g := l.mesh.Group(i)
		size, rank = size*g.Size(), rank*g.Size()+g.Rank()
	}
	return size, rank
}

// call runs a model that is in no pipeline.
func (l *layout) call(model nn.Layer, x *core.Tensor) *core.Tensor {
	if len(l.units) > 0 {
		return l.units[0].Forward(x)
	}
	return nn.Call(model, x)
}

// inStep runs fn, a training step, which fails on all ranks that share parameters if it does on one.
func (l *layout) inStep(fn func() error) error {
	for _, f := range l.units {
		inner, t := fn, f.Tree()
		fn = func() error { return t.InStep(inner) }
	}
	return fn()
}

// running runs fn, a pass of the model. ends says that at its end all ranks have done so, backward included.
func (l *layout) running(ends bool, fn func() error) (err error) {
	if l.tp == nil {
		return guarded(fn)
	}
	if err := l.tp.BeginPass(); err != nil {
		return err
	}
	pass := l.tp.Pass()
	core.WithMode(func(m core.Mode) core.Mode { return m.WithReplicates(true) }, func() { err = guarded(fn) })
	if err == nil && ends {
		_, err = pass.End(-1)
	}
	if err != nil {
		pass.Fail(err)
	}
	return err
}

// guarded runs fn, whose panic is an error.
func guarded(fn func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = core.Errorf(core.StateError, what, "panic: %v", v)
		}
	}()
	return fn()
}

// whole returns a tensor as an ordinary one, with all elements.
func whole(t *core.Tensor) *core.Tensor {
	if t.Err() == nil && t.Parts() != nil {
		return tensor.Full(t)
	}
	return t
}
