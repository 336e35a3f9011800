package bind

import (
	"github.com/plait-ml/plait/capi/handle"
	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/parallel/pipeline"
)

// PipelineNew returns what carries out steps on n devices, all driven by the calling thread; place are the numbers in the list of
// the devices of the stages. With its handle its streams and copies end.
//
//plait:waits
func PipelineNew(devices Ints, n int64, place Ints, stages int64) (status Object) {
	defer protect("pipeline", &status)
	var on []core.Device
	for _, d := range handle.Ints(devices, n) {
		on = append(on, device(int64(d)))
	}
	x, err := pipeline.NewExecutor(on, handle.Ints(place, stages))
	if err != nil {
		return failure(err)
	}
	return handle.AddObject(executing{x})
}

// PipelineNewRank returns what carries out the calling rank's part of steps; place are the ranks in the group of the stages.
//
//plait:waits
func PipelineNewRank(g Object, on Device, place Ints, stages int64) (status Object) {
	defer protect("pipeline", &status)
	x, err := pipeline.NewRankExecutor(group(g), device(on), handle.Ints(place, stages))
	if err != nil {
		return failure(err)
	}
	return handle.AddObject(executing{x})
}

// An executing executor ends with its handle. Whoever lets go of that must not wait for devices.
type executing struct{ *pipeline.Executor }

func (x executing) Close() { x.ReleaseLater() }

func executor(h Object) *pipeline.Executor {
	x, ok := handle.Object[executing](h)
	if !ok {
		panic(core.Errorf(core.StateError, "pipeline", "got no pipeline, or one that was released"))
	}
	return x.Executor
}

// PipelineTie returns what a stage has to use in place of a tensor: 0 for the tensor itself, or a copy on the stage's device, whose
// gradient ends up in the tensor's.
//
//plait:waits
func PipelineTie(h Object, t Tensor, stage int64) (status Tensor) {
	defer protect("pipeline", &status)
	defer using(tensorOrNil(t))()
	v := tensor(t)
	c, err := executor(h).Tie(v, int(stage))
	if err != nil {
		return failure(err)
	}
	if c == v {
		return 0
	}
	return result(c.Alias(true))
}

// PipelineShare says that n stages of ranks use one tensor, of which t is the calling rank's copy: it gets the gradient of all uses.
// Every rank with one of the stages says so, in the same order for tensors of the same stages.
func PipelineShare(h Object, t Tensor, stages Ints, n int64) (status Status) {
	defer protect("pipeline", &status)
	return failure(executor(h).Share(tensor(t), handle.Ints(stages, n)))
}

// A pipelineStep is a step on its way, and what it asks its caller for.
type pipelineStep struct {
	*pipeline.Step
	call *pipeline.Call
	pass *pass // the last backward pass that asked for something
	name Object
}

// Close gives back everything, losses and outputs too.
func (s *pipelineStep) Close() { s.Release() }

func stepOf(h Object) *pipelineStep {
	s, ok := handle.Object[*pipelineStep](h)
	if !ok {
		panic(core.Errorf(core.StateError, "pipeline", "got no step, or one that was released"))
	}
	return s
}

// PipelineBegin prepares a step. inputs are those of the first stage, each tensors of one micro-batch after those of another; n is
// the number of micro-batches for which there are some, 0 on a rank without that stage. weights are what the micro-batches' losses
// count; weightsLen may be 0 where none is computed. scale multiplies the gradients, and not the losses. train asks for gradients, and loss for a call for each output's loss. The
// step's handle ends before that of h.
//
//plait:waits
func PipelineBegin(h Object, schedule Object, inputs Tensors, each, n int64, weights Floats, weightsLen int64, scale float64, train bool, loss bool) (status Object) {
	defer protect("pipeline", &status)
	defer using(tensors(inputs, each*n)...)()
	b := pipeline.Batch{Schedule: scheduleOf(schedule), Weights: append([]float64(nil), handle.Slice[float64](weights, weightsLen)...), Scale: scale, Train: train, Loss: loss}
	list := tensors(inputs, each*n)
	for i := range n {
		b.Inputs = append(b.Inputs, list[i*each:(i+1)*each])
	}
	s, err := executor(h).Begin(b)
	if err != nil {
		return failure(err)
	}
	return handle.AddObject(&pipelineStep{Step: s})
}

// The requests of a step that are not a backward pass's.
const (
	wantForward = 16
	wantLoss    = 17
	wantEnd     = 18
)

// PipelineNext goes on with a step. It returns 0 when the step has ended, and otherwise what it wants of the caller: 16 a stage's
// forward pass on [PipelineInputs], 17 the loss of these, the last stage's outputs, 18, of ranks, to make what it makes of the whole
// step, without results: if that fails, the step fails on all ranks; or what [BackwardStep] says, of the pass that [PipelinePass]
// returns. [PipelineAnswer] gives the answer. It returns [Busy] about every twentieth of a second, and where it would
// wait for room in a queue: call it again.
//
//plait:waits
func PipelineNext(h Object) (status Status) {
	defer protect("pipeline", &status)
	s := stepOf(h)
	c, err := s.NextFor(slice)
	if err != nil {
		return failure(err)
	}
	s.call = c
	if c == nil {
		return packed(0)
	}
	switch c.What {
	case pipeline.CallAgain:
		s.call = nil
		return Busy
	case pipeline.CallForward:
		return packed(wantForward)
	case pipeline.CallLoss:
		return packed(wantLoss)
	case pipeline.CallEnd:
		return packed(wantEnd)
	}
	return packed(int64(c.Request.What) + 1)
}

// PipelineWhere writes the stage, the micro-batch, the mode to be in and the number of inputs of what a step wants.
func PipelineWhere(h Object, out IntsOut) (status Status) {
	defer protect("pipeline", &status)
	c := stepOf(h).call
	if c == nil {
		return failf(core.StateError, "pipeline", "nothing was asked for")
	}
	slots := handle.Slice[int64](out, 4)
	slots[0], slots[1], slots[2], slots[3] = int64(c.Stage), int64(c.Micro), int64(c.Mode), int64(len(c.Inputs))
	return 0
}

// PipelineInputs writes handles of the tensors to work on, which are the caller's.
func PipelineInputs(h Object, out TensorsOut) (status Status) {
	defer protect("pipeline", &status)
	c := stepOf(h).call
	if c == nil {
		return failf(core.StateError, "pipeline", "nothing was asked for")
	}
	slots := handle.Slice[int64](out, int64(len(c.Inputs)))
	for i, t := range c.Inputs {
		slots[i] = result(t.Alias(true))
	}
	return 0
}

// PipelinePass returns the backward pass that asks for something, each time the same handle until another does. Release it.
func PipelinePass(h Object) (status Object) {
	defer protect("pipeline", &status)
	s := stepOf(h)
	c := s.call
	if c == nil || c.Request == nil {
		return failf(core.StateError, "pipeline", "nothing was asked for")
	}
	if s.pass == nil || s.pass.run != c.Run {
		s.pass = &pass{run: c.Run, borrowed: true}
		s.name = handle.AddObject(s.pass)
	}
	s.pass.request = c.Request
	return s.name
}

// PipelineAnswer gives a step the n tensors that it asked for, 0 for absent ones.
//
//plait:waits
func PipelineAnswer(h Object, results Tensors, n int64) (status Status) {
	defer protect("pipeline", &status)
	defer using(tensors(results, n)...)()
	s := stepOf(h)
	list := tensors(results, n)
	if c := s.call; c != nil && c.What == pipeline.CallBackward {
		for i, g := range list {
			if g == nil {
				continue
			}
			if g = g.Alias(true); g.Err() != nil {
				return failure(g.Err())
			}
			list[i] = g.Keep()
		}
	}
	s.call = nil
	return failure(s.Answer(list))
}

// PipelineFail says why the caller gives a step up, before it releases it: memory says that memory was lacking. Other ranks are told.
//
//plait:waits
func PipelineFail(h Object, why string, memory bool) (status Status) {
	defer protect("pipeline", &status)
	s := stepOf(h)
	s.call = nil
	_ = s.Fail(givenUp(why, memory))
	return 0
}

func givenUp(why string, memory bool) error {
	kind := core.StateError
	if memory {
		kind = core.MemoryError
	}
	return core.Errorf(kind, "pipeline", "%s", why)
}

// PipelineRefuse says why the caller cannot begin the ranks' next step, which then fails on all of them; memory is as for [PipelineFail].
func PipelineRefuse(h Object, why string, memory bool) (status Status) {
	defer protect("pipeline", &status)
	return failure(executor(h).Refuse(givenUp(why, memory)))
}

// PipelineForget drops the gradients of n tensors of a rank's stages after a step that has failed, and makes those usable that were to be
// changed by what did not come.
//
//plait:waits
func PipelineForget(list Tensors, n int64) (status Status) {
	defer protect("pipeline", &status)
	defer using(tensors(list, n)...)()
	pipeline.Forget(tensors(list, n))
	return 0
}

// PipelineLoss returns the sum of the losses of a step whose passes have ended, each with its weight; 0 where there is none.
func PipelineLoss(h Object) (status Tensor) {
	defer protect("pipeline", &status)
	if queueNearlyFull() {
		return Busy
	}
	l := stepOf(h).Loss()
	if l == nil {
		return 0
	}
	return result(l)
}

// PipelineMeasured waits for a step's work and returns the timeline of when it was done; 0 where that cannot be measured.
//
//plait:waits
func PipelineMeasured(h Object) (status Object) {
	defer protect("pipeline", &status)
	t := stepOf(h).Measured()
	if t == nil {
		return 0
	}
	return handle.AddObject(t)
}
