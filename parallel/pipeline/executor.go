package pipeline

import (
	"math"
	"sync/atomic"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/parallel/collective"
)

// An Executor runs the steps of schedules. It copies tensors between devices on streams of its own.
type Executor struct {
	current     atomic.Pointer[Step] // the running step; nil between steps
	devices     []core.Device        // by row of the schedule; nil for those of other ranks
	place       []int                // index into devices, by stage
	copier      *copier
	tied        []*tiedParam
	shared      []*sharedParam
	group       *collective.Group // each rank runs one row; nil if one thread runs all rows
	channel     *collective.Group // a channel of group for this executor alone; nil before the first step
	stepChannel *collective.Group // a channel of that channel for steps; a failed step revokes it, and the next step makes another
}

// NewExecutor returns an executor that runs all devices from the calling thread. place holds the index of each stage's device.
func NewExecutor(devices []core.Device, place []int) (*Executor, error) {
	if len(devices) == 0 {
		return nil, core.Errorf(core.ValueError, "pipeline", "got no devices")
	}
	return newExecutor(devices, place, nil)
}

// NewRankExecutor returns the executor of one of several ranks. Each rank runs its own stages on its own device. place holds the
// rank of each stage.
func NewRankExecutor(g *collective.Group, device core.Device, place []int) (*Executor, error) {
	devices := make([]core.Device, g.Size())
	devices[g.Rank()] = device
	return newExecutor(devices, place, g)
}

func newExecutor(devices []core.Device, place []int, g *collective.Group) (*Executor, error) {
	used := make([]bool, len(devices))
	for s, d := range place {
		if d < 0 || d >= len(devices) {
			return nil, core.Errorf(core.ValueError, "pipeline", "stage %d is on device %d, there are %d", s, d, len(devices))
		}
		used[d] = true
	}
	for d, u := range used {
		if !u {
			return nil, core.Errorf(core.ValueError, "pipeline", "got %d stages for %d devices: device %d has none", len(place), len(devices), d)
		}
	}
	return &Executor{devices: devices, place: place, copier: newCopier(core.CurrentContext().Rank()), group: g}, nil
}

// notAStep takes the place of the running step while a method other than a step changes the executor.
var notAStep = new(Step)

// acquire makes s the running step. Only one step may run at a time, because steps share the gradients of tied parameters.
func (x *Executor) acquire(s *Step) error {
	if x.current.CompareAndSwap(nil, s) {
		return nil
	}
	return core.Errorf(core.StateError, "pipeline", "two threads use one pipeline at the same time, or a step is within another; end the step that is on its way before the next, or give each thread a pipeline of its own")
}

// Stages returns the number of stages.
func (x *Executor) Stages() int { return len(x.place) }

// Device returns the device of a stage, and nil for a stage of another rank.
func (x *Executor) Device(stage int) core.Device { return x.devices[x.place[stage]] }

// isLocal reports whether the calling thread runs the stage.
func (x *Executor) isLocal(stage int) bool { return x.group == nil || x.place[stage] == x.group.Rank() }

// Release frees the copies of tied parameters and closes the executor's streams. It waits for the streams.
func (x *Executor) Release() error {
	if err := x.acquire(notAStep); err != nil {
		return err
	}
	defer x.current.Store(nil)
	x.releaseTies()
	return x.copier.close()
}

// ReleaseLater is [Executor.Release] for callers that must not wait, such as finalizers. A goroutine closes the streams.
func (x *Executor) ReleaseLater() {
	x.releaseTies()
	go func() { _ = x.copier.close() }()
}

func (x *Executor) releaseTies() {
	for _, t := range x.tied {
		t.release()
	}
	x.tied = nil
}

// A Batch is the input of a step.
type Batch struct {
	Schedule *Schedule
	// Inputs are the inputs of the first stage, by micro-batch; nil on ranks without that stage.
	Inputs [][]*core.Tensor
	// Weights are the weights of the micro-batches' losses in the batch's loss: see [Weights].
	Weights []float64
	// Scale multiplies the gradients but not the losses, so that small gradients do not underflow in float16; 0 means 1.
	Scale float64
	// Train runs backward passes. Without it only the schedule's forward passes run.
	Train bool
	// Loss asks the caller for a loss of each micro-batch's output. Without it the last stage's output is the loss.
	Loss bool
	// Outputs keeps the last stage's outputs.
	Outputs bool
}

// check returns an error if the batch does not fit the executor.
func (x *Executor) check(b *Batch) error {
	const op = "pipeline"
	if b.Schedule == nil {
		return core.Errorf(core.ValueError, op, "got no schedule")
	}
	if err := b.Schedule.Validate(); err != nil {
		return err
	}
	micro, stages := b.Schedule.Micro(), b.Schedule.Stages()
	if stages != len(x.place) || len(b.Schedule.Rows) != len(x.devices) {
		return core.Errorf(core.ValueError, op, "the schedule %s is for %d stages on %d devices, the pipeline has %d on %d",
			b.Schedule.Name, stages, len(b.Schedule.Rows), len(x.place), len(x.devices))
	}
	for s, d := range b.Schedule.Devices() {
		if d != x.place[s] {
			return core.Errorf(core.ValueError, op, "the schedule %s has stage %d on device %d, the pipeline on device %d", b.Schedule.Name, s, d, x.place[s])
		}
	}
	if x.isLocal(0) && len(b.Inputs) != micro {
		return core.Errorf(core.ValueError, op, "got %d micro-batches, the schedule %s is for %d", len(b.Inputs), b.Schedule.Name, micro)
	}
	if x.isLocal(stages-1) && (b.Train || b.Loss) && len(b.Weights) != micro {
		return core.Errorf(core.ValueError, op, "got %d weights of losses for %d micro-batches", len(b.Weights), micro)
	}
	if b.Scale == 0 {
		b.Scale = 1
	} else if !(b.Scale > 0) || math.IsInf(b.Scale, 0) {
		return core.Errorf(core.ValueError, op, "got gradients to be multiplied by %v, want a number above 0", b.Scale)
	}
	if b.Train && !core.CurrentMode().GradEnabled() {
		return core.Errorf(core.StateError, op, "a training step without recording gradients (under no_grad) has nothing to do; evaluate instead")
	}
	return nil
}

// Forks returns random generators for n micro-batches. Each generator follows its micro-batch through the stages, so that a plain
// loop over micro-batches with these generators draws the same numbers. The generators depend on the state of the default
// device's generator, which Forks advances by one.
func Forks(n int) ([]*core.Generator, error) {
	ctx := core.CurrentContext()
	dev, err := ctx.DefaultDevice()
	if err != nil {
		return nil, err
	}
	g := core.NewGenerator(0)
	g.SetState(ctx.Generator(dev).Next(1))
	list := make([]*core.Generator, n)
	for i := range list {
		list[i] = g.Fork(uint64(i))
	}
	return list, nil
}
