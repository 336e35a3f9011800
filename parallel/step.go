package parallel

import (
	"slices"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/nn"
	"github.com/plait-ml/plait/core/op"
	"github.com/plait-ml/plait/parallel/internal/agreement"
	"github.com/plait-ml/plait/parallel/pipeline"
	"github.com/plait-ml/plait/parallel/tensor"
)

// A passing is one step of a pipeline on its way.
type passing struct {
	*layout
	train   bool
	targets []*core.Tensor // by micro-batch
	outputs []*core.Tensor // of the last stage, whose losses are to come
}

// stepStages runs the passes of a batch, and returns on every rank of the pipeline its loss, or without training its output. They belong to the
// caller's scope.
func (l *layout) stepStages(x, target *core.Tensor, train bool, scale float64) (loss, output *core.Tensor, err error) {
	s := l.stages
	out := core.RunScope(func() []*core.Tensor {
		var found *core.Tensor
		run := func() error {
			return l.running(true, func() error {
				b, p, err := l.cut(x, target, train, scale)
				if err == nil {
					found, err = p.run(b)
				}
				return err
			})
		}
		if train {
			err = l.inStep(run)
		} else {
			err = run()
		}
		if train && l.copies != nil && !l.unsync {
			err = AverageGradients(l.copies.Group(0), s.parameters(), err)
		}
		if err != nil {
			if train {
				pipeline.Forget(s.tensors())
			}
			return nil
		}
		found, err = l.handOut(found)
		return []*core.Tensor{found}
	})
	switch {
	case err != nil:
		return nil, nil, err
	case train:
		return out[0], nil, nil
	}
	return nil, out[0], nil
}

// said is what a rank of a pipeline says of its batch.
type said struct {
	Shape   []int
	Problem string
}

// cut checks a batch on all ranks of the pipeline, and cuts it into micro-batches.
func (l *layout) cut(x, target *core.Tensor, train bool, scale float64) (pipeline.Batch, *passing, error) {
	s := l.stages
	b, p := pipeline.Batch{Train: train, Loss: train, Outputs: !train, Scale: scale}, &passing{layout: l, train: train}
	err := l.checkBatch(x, target, train)
	if l.axes.FSDP != "" { // pipelines that share their parameters begin together, or not at all
		err = l.checkOthers(err)
	}
	if err != nil {
		return b, nil, err
	}
	sizes := pipeline.Sizes(x.Size(0), s.micro)
	b.Weights = pipeline.Weights(sizes, false)
	if b.Schedule, err = pipeline.New(s.schedule, s.group.Size(), len(sizes), len(s.place)/s.group.Size()); err != nil {
		return b, nil, err
	}
	at := 0
	for _, n := range sizes {
		if s.here[0] != nil {
			b.Inputs = append(b.Inputs, []*core.Tensor{op.Narrow(x, 0, at, n)})
		}
		if train {
			p.targets = append(p.targets, op.Narrow(target, 0, at, n))
		}
		at += n
	}
	p.outputs = make([]*core.Tensor, len(sizes))
	return b, p, nil
}

// checkBatch compares the batches of the ranks of a pipeline.
func (l *layout) checkBatch(x, target *core.Tensor, train bool) error {
	g, mine := l.stages.group, said{}
	problem := x.Usable(what)
	if problem == nil {
		if mine.Shape = x.Shape(); len(mine.Shape) == 0 || mine.Shape[0] == 0 {
			problem = core.Errorf(core.ShapeError, what, "got a batch of shape %v, want at least one sample along dimension 0", mine.Shape)
		}
	}
	if problem == nil && train {
		if problem = target.Usable(what); problem == nil && (target.Dim() == 0 || target.Size(0) != mine.Shape[0]) {
			problem = core.Errorf(core.ShapeError, what, "got a target of shape %v for %d samples", target.Shape(), mine.Shape[0])
		}
	}
	if problem != nil {
		mine.Problem = problem.Error()
	}
	all, err := agreement.Exchange(g, what, "a step of a pipeline", mine, problem)
	if err != nil {
		return err
	}
	for r, other := range all {
		if other.Problem != "" {
			return core.Errorf(core.DistributedError, what, "rank %d cannot begin: %s", g.Ranks()[r], other.Problem)
		}
		if !slices.Equal(other.Shape, all[0].Shape) {
			return core.Errorf(core.DistributedError, what, "ranks of a pipeline gave different batches: rank %d one of shape %v, rank %d of %v; all want the same part of the batch",
				g.Ranks()[0], all[0].Shape, g.Ranks()[r], other.Shape)
		}
	}
	return nil
}

// checkOthers returns an error if pipelines with which this one shares its parameters cannot begin. problem is why this one cannot.
func (l *layout) checkOthers(problem error) error {
	axis, err := l.mesh.Axis(l.axes.FSDP)
	if err != nil {
		return err
	}
	g, mine := l.mesh.Group(axis), said{}
	if problem != nil {
		mine.Problem = problem.Error()
	}
	all, err := agreement.Exchange(g, what, "a step of a pipeline", mine, problem)
	for r, other := range all {
		if err == nil && other.Problem != "" {
			err = core.Errorf(core.DistributedError, what, "the pipeline of rank %d cannot begin: %s", g.Ranks()[r], other.Problem)
		}
	}
	return err
}

// run runs the passes, and returns the loss of the batch, or its output, on the rank with the last stage.
func (p *passing) run(b pipeline.Batch) (found *core.Tensor, err error) {
	s := p.stages
	step, err := s.executor.Begin(b)
	if err != nil {
		return nil, err
	}
	defer func() {
		step.Release()
		for _, y := range p.outputs {
			y.Release()
		}
	}()
	for {
		c, err := step.Next()
		if err != nil {
			return nil, err
		}
		if c == nil {
			break
		}
		if err := p.answer(step, c); err != nil {
			return nil, err
		}
	}
	core.NoGrad(func() {
		switch {
		case s.here[len(s.place)-1] == nil:
		case p.train:
			found = step.Loss().Alias(false)
		default:
			var parts []*core.Tensor
			for _, list := range step.Outputs() {
				parts = append(parts, list[0])
			}
			found = op.Cat(parts, 0)
			err = found.Err()
		}
	})
	return found, err
}

// answer runs what a step asks for: a stage's forward pass or the loss.
func (p *passing) answer(step *pipeline.Step, c *pipeline.Call) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = step.Fail(core.Errorf(core.StateError, what, "panic: %v", v))
		}
	}()
	switch c.What {
	case pipeline.CallBackward:
		return step.Fail(core.Errorf(core.StateError, "backward", "a hook belongs to another language"))
	case pipeline.CallEnd:
		return step.Answer(nil)
	}
	core.WithMode(func(core.Mode) core.Mode { return c.Mode.WithReplicates(p.tp != nil) }, func() {
		core.Tidy(func() {
			var y *core.Tensor
			if c.What == pipeline.CallLoss {
				y = whole(p.options.Loss(p.outputs[c.Micro], p.targets[c.Micro]))
				p.outputs[c.Micro].Release()
				p.outputs[c.Micro] = nil
			} else if y = p.forward(c.Stage, c.Inputs[0]); c.Stage < len(p.stages.place)-1 || !p.train {
				y = whole(y)
			} else {
				p.outputs[c.Micro] = y.Alias(true).Keep()
				if y.Parts() != nil {
					y = tensor.Local(y, nil)
				}
			}
			err = step.Answer([]*core.Tensor{y})
		})
	})
	return err
}

// forward runs a stage.
func (p *passing) forward(number int, x *core.Tensor) *core.Tensor {
	m := p.stages.here[number]
	switch units := p.units; {
	case len(units) == 0:
		return nn.Call(m, x)
	case len(units) == len(p.stages.here):
		return units[slices.Index(p.stages.mine(), number)].Forward(x)
	default: // the stages of this rank share parameters
		out, err := units[0].Run(func(in []*core.Tensor) []*core.Tensor { return []*core.Tensor{nn.Call(m, in[0])} }, x)
		if err != nil {
			return core.ErrorTensor(err)
		}
		return out[0]
	}
}

// tensors returns the tensors of this rank's stages.
func (s *staged) tensors() (list []*core.Tensor) {
	for _, i := range s.mine() {
		for _, n := range nn.NamedTensors(s.here[i]) {
			list = append(list, n.Tensor)
		}
	}
	return list
}

// parameters returns the parameters of this rank's stages, each once.
func (s *staged) parameters() (list []*core.Tensor) {
	for _, i := range s.mine() {
		for _, p := range nn.Parameters(s.here[i]) {
			if !slices.Contains(list, p) {
				list = append(list, p)
			}
		}
	}
	return list
}

// A form is the dtype and the shape of a tensor.
type form struct {
	DType core.DType
	Shape []int
}

// handOut returns the tensor of the rank with the last stage on every rank of the pipeline.
func (l *layout) handOut(t *core.Tensor) (*core.Tensor, error) {
	s := l.stages
	g, last := s.group.For("what the last stage of a pipeline has made"), s.place[len(s.place)-1]
	var mine form
	if t != nil {
		mine = form{t.DType(), t.Shape()}
	}
	all, err := agreement.Exchange(g, what, "the end of a step", mine, nil)
	if err != nil {
		return nil, err
	}
	core.NoGrad(func() {
		if t == nil {
			f := all[last]
			t = op.EmptyWith(f.Shape, op.TensorOptions{DType: &f.DType, Device: s.device})
		} else {
			t = op.Contiguous(t.Detach())
		}
	})
	if err := t.Err(); err != nil {
		return nil, err
	}
	if err := g.Broadcast(t, last).Arrived(); err != nil {
		return nil, err
	}
	return t, nil
}
