package pipeline

import (
	"math"
	"sync/atomic"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/parallel/collective"
)

// An Executor carries out steps of schedules on devices. It has streams of its own for what goes from one device to another.
type Executor struct {
	open    atomic.Pointer[Step] // the step that is on its way
	devices []core.Device        // by row; of other ranks nil
	place   []int                // by stage
	lines   *lines
	ties    []*tie
	shares  []*share
	group   *collective.Group // of ranks that have one row each; nil if one thread drives all
	own     *collective.Group // a channel of it for this executor alone; nil before the first step
	steps   *collective.Group // a channel of that one, which a step that fails ends on all ranks; nil until the next begins
}

// NewExecutor returns an executor whose calling thread drives all devices. place is the device's number of each stage.
func NewExecutor(devices []core.Device, place []int) (*Executor, error) {
	if len(devices) == 0 {
		return nil, core.Errorf(core.ValueError, "pipeline", "got no devices")
	}
	return newExecutor(devices, place, nil)
}

// NewRankExecutor returns the executor of one of several ranks, each of which drives its own stages on its own device. place is
// the rank of each stage in the group.
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
	return &Executor{devices: devices, place: place, lines: newLines(core.CurrentContext().Rank()), group: g}, nil
}

// busy stands for a change of the executor, in the place of a step.
var busy = new(Step)

// take makes s the step that is on its way. There is one at a time: steps share the gradients of ties.
func (x *Executor) take(s *Step) error {
	if x.open.CompareAndSwap(nil, s) {
		return nil
	}
	return core.Errorf(core.StateError, "pipeline", "two threads use one pipeline at the same time, or a step is within another; end the step that is on its way before the next, or give each thread a pipeline of its own")
}

// Stages returns the number of stages.
func (x *Executor) Stages() int { return len(x.place) }

// Device returns the device of a stage; nil if it is another rank's.
func (x *Executor) Device(stage int) core.Device { return x.devices[x.place[stage]] }

// mine reports whether the calling thread drives the stage.
func (x *Executor) mine(stage int) bool { return x.group == nil || x.place[stage] == x.group.Rank() }

// Release gives the memory of copies back and ends the executor's streams, for which it waits.
func (x *Executor) Release() error {
	if err := x.take(busy); err != nil {
		return err
	}
	defer x.open.Store(nil)
	x.releaseTies()
	return x.lines.close()
}

// ReleaseLater is [Executor.Release] for those who must not wait: the streams end when they have done what they have.
func (x *Executor) ReleaseLater() {
	x.releaseTies()
	go func() { _ = x.lines.close() }()
}

func (x *Executor) releaseTies() {
	for _, t := range x.ties {
		t.release()
	}
	x.ties = nil
}

// A Batch is what a step works on.
type Batch struct {
	Schedule *Schedule
	// Inputs are the first stage's, by micro-batch; of ranks without that stage nil.
	Inputs [][]*core.Tensor
	// Weights are what each micro-batch's loss counts: the parts of the samples, for a loss that is a mean over them, and 1 for
	// one that is a sum.
	Weights []float64
	// Scale multiplies the gradients, and not the losses, for types in which small ones vanish; 0 means 1.
	Scale float64
	// Train asks for gradients. Without it only the schedule's forward passes run.
	Train bool
	// Loss asks the caller for a loss of each micro-batch's output. Without it the last stage's output is the loss.
	Loss bool
	// Outputs keeps the last stage's outputs.
	Outputs bool
}

// check returns an error unless the batch fits the executor.
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
	if x.mine(0) && len(b.Inputs) != micro {
		return core.Errorf(core.ValueError, op, "got %d micro-batches, the schedule %s is for %d", len(b.Inputs), b.Schedule.Name, micro)
	}
	if x.mine(stages-1) && (b.Train || b.Loss) && len(b.Weights) != micro {
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

// Forks returns the random generators of n micro-batches: each goes through the stages with its micro-batch, so that a plain loop
// over micro-batches which uses them draws the same numbers. They depend on the state of the default device's generator, which
// moves on by one.
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
