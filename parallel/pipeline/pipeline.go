package pipeline

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/nn"
	"github.com/plait-ml/plait/core/op"
)

// Options configure a [Pipeline].
type Options struct {
	// Chunks is the number of micro-batches. A batch is divided along dimension 0. There must be at least as many as devices.
	Chunks int
	// Schedule is the name of a schedule that [New] knows; empty means 1f1b.
	Schedule string
	// Custom is a schedule for Chunks micro-batches that replaces a named one.
	Custom *Schedule
	// Stages is the number of stages on each device, for schedules without a fixed number; 0 means the default of [Chunks].
	Stages int
	// Split holds the number of layers of each stage; nil balances the stages by their numbers of parameters.
	Split []int
	// Loss returns the loss of an output, a scalar. Without it the model's output is the loss.
	Loss func(output, target *core.Tensor) *core.Tensor
	// Sum says that the loss is a sum over the samples and not a mean. A mean with ignored targets or class weights is neither: return
	// the sum divided by the total weight of the whole batch, and set Sum.
	Sum bool
}

// A Pipeline is a [nn.Sequential] whose layers are on several devices. Its parameters keep the names they have in the sequence.
type Pipeline struct {
	nn.Base
	Module *nn.Sequential `plait:"inline"`

	executor  *Executor
	options   Options
	mu        sync.Mutex        // of schedules
	schedules map[int]*Schedule // by number of micro-batches
	stages    [][]nn.Layer      `plait:"-"` // the layers that run; copies where a layer shares tensors with another device
	last      atomic.Pointer[Step]
}

// NewPipeline divides the model into stages on the devices. A tensor that is already on its stage's device is the model's own,
// other tensors are copies, so the parameters of the pipeline are the ones to train. A tensor shared by several stages is on the
// device of the first of them.
func NewPipeline(model *nn.Sequential, devices []string, o Options) (*Pipeline, error) {
	if err := nn.Err(model); err != nil {
		return nil, err
	}
	p := &Pipeline{options: o, schedules: map[int]*Schedule{}}
	var open []core.Device
	for _, name := range devices {
		dev, err := core.OpenDevice(name)
		if err != nil {
			return nil, err
		}
		open = append(open, dev)
	}
	place, err := p.placeStages(len(open))
	if err != nil {
		return nil, err
	}
	if p.executor, err = NewExecutor(open, place); err != nil {
		return nil, err
	}
	sizes, err := Split(model, len(place), o.Split)
	if err != nil {
		return nil, err
	}
	return p, p.cut(model, sizes)
}

// placeStages checks the options and returns the device of each stage.
func (p *Pipeline) placeStages(devices int) ([]int, error) {
	o := &p.options
	if o.Schedule == "" {
		o.Schedule = "1f1b"
	}
	if o.Chunks < 1 {
		return nil, core.Errorf(core.ValueError, "pipeline", "got %d micro-batches, want at least one", o.Chunks)
	}
	if s := o.Custom; s != nil {
		if err := s.Validate(); err != nil {
			return nil, err
		}
		if s.Micro() != o.Chunks || len(s.Rows) != devices {
			return nil, core.Errorf(core.ValueError, "pipeline", "the schedule %s is for %d micro-batches on %d devices, got %d on %d", s.Name, s.Micro(), len(s.Rows), o.Chunks, devices)
		}
		return s.Devices(), nil
	}
	chunks, err := Chunks(o.Schedule, o.Stages)
	if err != nil {
		return nil, err
	}
	if o.Chunks < devices {
		return nil, core.Errorf(core.ValueError, "pipeline", "%s needs at least as many micro-batches as devices, got %d for %d", o.Schedule, o.Chunks, devices)
	}
	return Place(o.Schedule, devices, chunks)
}

// Split returns the number of layers of each stage of a model: sizes, if they fit, or without sizes such that the stages have about equally many
// parameters.
func Split(model *nn.Sequential, stages int, sizes []int) ([]int, error) {
	if sizes == nil {
		return Balance(layerCosts(model), stages)
	}
	return sizes, checkSplit(sizes, stages, len(model.Layers))
}

func checkSplit(sizes []int, stages, layers int) error {
	total := 0
	for _, n := range sizes {
		if total += n; n < 1 {
			total = -1
			break
		}
	}
	if len(sizes) != stages || total != layers {
		return core.Errorf(core.ValueError, "pipeline", "got a split of %v layers, want %d stages that make up the %d layers", sizes, stages, layers)
	}
	return nil
}

// layerCosts estimates the cost of each layer by its number of parameters.
func layerCosts(model *nn.Sequential) []float64 {
	costs := make([]float64, len(model.Layers))
	for i, l := range model.Layers {
		costs[i] = 1
		for _, t := range nn.Parameters(l) {
			costs[i] += float64(t.Numel())
		}
	}
	return costs
}

// cut divides the layers into stages and moves their tensors to the stages' devices.
func (p *Pipeline) cut(model *nn.Sequential, sizes []int) error {
	stageOf := make([]int, 0, len(model.Layers))
	for s, n := range sizes {
		for range n {
			stageOf = append(stageOf, s)
		}
	}
	owner := map[*core.Tensor]int{}
	for i, l := range model.Layers {
		for _, n := range nn.NamedTensors(l) {
			if _, known := owner[n.Tensor]; !known {
				owner[n.Tensor] = stageOf[i]
			}
		}
	}
	moved := map[*core.Tensor]*core.Tensor{}
	var err error
	p.Module = nn.Replicate(model, func(n nn.Named) *core.Tensor {
		t := moved[n.Tensor]
		if t == nil {
			if t, err = moveTensor(n, p.executor.Device(owner[n.Tensor]), err); err == nil {
				moved[n.Tensor] = t
			}
		}
		return t
	}).(*nn.Sequential)
	if err != nil {
		return err
	}
	at := 0
	for s, n := range sizes {
		layers := p.Module.Layers[at : at+n]
		at += n
		stage := make([]nn.Layer, n)
		for i, l := range layers {
			if stage[i], err = p.stageLayer(l, s); err != nil {
				return err
			}
		}
		p.stages = append(p.stages, stage)
	}
	return nil
}

// moveTensor returns a module's tensor on a device. It does nothing after an earlier error.
func moveTensor(n nn.Named, dev core.Device, before error) (*core.Tensor, error) {
	if before != nil || n.Tensor.Device() == dev {
		return n.Tensor, before
	}
	category := core.Buffer
	if n.Kind == nn.Parameter {
		category = core.Parameter
	}
	var t *core.Tensor
	core.NoGrad(func() {
		core.WithCategory(category, func() { t = op.ToDevice(n.Tensor.Detach(), dev).Keep() })
	})
	if err := t.Err(); err != nil {
		return n.Tensor, fmt.Errorf("%s: %w", n.Name, err)
	}
	return t.SetRequiresGrad(n.Tensor.RequiresGrad()), nil
}

// stageLayer returns the layer that a stage runs. If the layer uses tensors on another device, the result is a copy of the layer
// with copies of these tensors.
func (p *Pipeline) stageLayer(l nn.Layer, stage int) (nn.Layer, error) {
	dev, foreign := p.executor.Device(stage), false
	for _, n := range nn.NamedTensors(l) {
		foreign = foreign || n.Tensor.Device() != dev
	}
	if !foreign {
		return l, nil
	}
	var err error
	copied := nn.Replicate(l, func(n nn.Named) *core.Tensor {
		t, e := p.executor.Tie(n.Tensor, stage)
		if e != nil {
			err = e
			return n.Tensor
		}
		return t
	})
	return copied.(nn.Layer), err
}

// Schedule returns the schedule for a number of micro-batches.
func (p *Pipeline) Schedule(micro int) (*Schedule, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if s := p.schedules[micro]; s != nil {
		return s, nil
	}
	var s *Schedule
	var err error
	if p.options.Custom != nil {
		s = p.options.Custom.First(micro)
	} else {
		s, err = New(p.options.Schedule, len(p.executor.devices), micro, p.executor.Stages()/len(p.executor.devices))
	}
	if err == nil {
		p.schedules[micro] = s
	}
	return s, err
}

// Step runs the model forward and backward on a batch and returns the loss and the output, which belong to the caller's scope.
// Gradients accumulate in the parameters.
func (p *Pipeline) Step(x, target *core.Tensor) (loss, output *core.Tensor, err error) {
	return p.run(x, target, true)
}

// Evaluate runs the model without gradients and returns the loss and the output. The loss is nil without a target.
func (p *Pipeline) Evaluate(x, target *core.Tensor) (loss, output *core.Tensor, err error) {
	return p.run(x, target, false)
}

// Measured waits for the last step and returns when its actions ran. It returns nil without a step, and while one is running.
func (p *Pipeline) Measured() *Timeline {
	if s := p.last.Load(); s != nil {
		return s.Measured()
	}
	return nil
}

// Executor returns the executor of the steps.
func (p *Pipeline) Executor() *Executor { return p.executor }

func (p *Pipeline) run(x, target *core.Tensor, train bool) (loss, output *core.Tensor, err error) {
	if err := x.Usable("pipeline"); err != nil {
		return nil, nil, err
	}
	if x.Dim() == 0 || x.Size(0) == 0 {
		return nil, nil, core.Errorf(core.ShapeError, "pipeline", "got an input of shape %v, want at least one sample along dimension 0", x.Shape())
	}
	wanted := p.options.Loss != nil && (train || target != nil)
	if wanted && (target == nil || target.Dim() == 0 || target.Size(0) != x.Size(0)) {
		return nil, nil, core.Errorf(core.ShapeError, "pipeline", "got a target %v for %d samples", target, x.Size(0))
	}
	sizes := Sizes(x.Size(0), p.options.Chunks)
	b := Batch{Train: train, Loss: wanted, Outputs: true, Weights: Weights(sizes, p.options.Sum)}
	if b.Schedule, err = p.Schedule(len(sizes)); err != nil {
		return nil, nil, err
	}
	var targets []*core.Tensor
	out := core.RunScope(func() []*core.Tensor {
		if wanted { // copy the whole target now: a later copy of a part would wait for the device's computation
			if target = op.ToDevice(target, p.executor.Device(p.executor.Stages()-1)); target.Err() != nil {
				err = target.Err()
				return nil
			}
		}
		at := 0
		for _, n := range sizes {
			b.Inputs = append(b.Inputs, []*core.Tensor{op.Narrow(x, 0, at, n)})
			if wanted {
				targets = append(targets, op.Narrow(target, 0, at, n))
			}
			at += n
		}
		if loss, output, err = p.runStep(b, targets); err != nil {
			return nil
		}
		return []*core.Tensor{loss, output}
	})
	if err != nil {
		return nil, nil, err
	}
	return out[0], out[1], nil
}

func (p *Pipeline) runStep(b Batch, targets []*core.Tensor) (loss, output *core.Tensor, err error) {
	s, err := p.executor.Begin(b)
	if err != nil {
		return nil, nil, err
	}
	defer s.Release()
	p.last.Store(s)
	for {
		c, err := s.Next()
		if err != nil {
			return nil, nil, err
		}
		if c == nil {
			break
		}
		var target *core.Tensor
		if targets != nil {
			target = targets[c.Micro]
		}
		if err := p.answerCall(s, c, target); err != nil {
			return nil, nil, err
		}
	}
	core.NoGrad(func() {
		loss = s.Loss()
		var parts []*core.Tensor
		for _, list := range s.Outputs() {
			if list[0].Dim() == 0 {
				return // losses have no batch dimension to concatenate along
			}
			parts = append(parts, list[0])
		}
		output = op.Cat(parts, 0)
		err = output.Err()
	})
	return loss, output, err
}

// answerCall runs what a step asks for: a stage's forward pass or the loss.
func (p *Pipeline) answerCall(s *Step, c *Call, target *core.Tensor) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = s.Fail(core.Errorf(core.StateError, "forward", "panic: %v", v))
		}
	}()
	if c.What == CallBackward {
		return s.Fail(core.Errorf(core.StateError, "backward", "a hook belongs to another language"))
	}
	core.WithMode(func(core.Mode) core.Mode { return c.Mode }, func() {
		core.RunScope(func() []*core.Tensor {
			x := c.Inputs[0]
			if c.What == CallLoss {
				x = p.options.Loss(x, target)
			} else {
				for i, l := range p.stages[c.Stage] {
					if own := p.ownLayer(c.Stage, i); own != l && own.(interface{ Training() bool }).Training() {
						nn.Train(l)
					} else if own != l {
						nn.Eval(l)
					}
					x = nn.Call(l, x)
				}
			}
			err = s.Answer([]*core.Tensor{x})
			return nil
		})
	})
	return err
}

// ownLayer returns the module's layer for layer i of a stage: the same layer, or the one it is a copy of.
func (p *Pipeline) ownLayer(stage, i int) nn.Layer {
	for _, before := range p.stages[:stage] {
		i += len(before)
	}
	return p.Module.Layers[i]
}

// Release closes the pipeline's streams and frees copies of shared tensors.
func (p *Pipeline) Release() error { return p.executor.Release() }
