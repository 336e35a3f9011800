package bind

import (
	"strings"

	"github.com/plait-ml/plait/capi/handle"
	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/parallel/pipeline"
)

// PipelineNames returns the names of the known schedules, separated by spaces.
func PipelineNames() string { return strings.Join(pipeline.Names(), " ") }

// PipelineSchedule returns the schedule of a name for some micro-batches on some devices with chunks stages each; 0 means as few as
// the schedule is made for.
func PipelineSchedule(name string, devices, micro, chunks int64) (status Object) {
	defer protect("schedule", &status)
	s, err := pipeline.New(name, int(devices), int(micro), int(chunks))
	if err != nil {
		return failure(err)
	}
	return handle.AddObject(s)
}

// PipelineParse returns the schedule that a text says. It is not validated.
func PipelineParse(text string) (status Object) {
	defer protect("schedule", &status)
	s, err := pipeline.Parse(text)
	if err != nil {
		return failure(err)
	}
	return handle.AddObject(s)
}

// PipelineChunks returns how many stages each device has under the schedule of a name.
func PipelineChunks(name string, chunks int64) (status int64) {
	defer protect("schedule", &status)
	n, err := pipeline.Chunks(name, int(chunks))
	if err != nil {
		return failure(err)
	}
	return int64(n)
}

// PipelinePlace writes the number of the device of each stage under the schedule of a name.
func PipelinePlace(name string, devices, chunks int64, out IntsOut) (status Status) {
	defer protect("schedule", &status)
	place, err := pipeline.Place(name, int(devices), int(chunks))
	if err != nil {
		return failure(err)
	}
	writeInts(out, place)
	return 0
}

func writeInts(out IntsOut, values []int) {
	slots := handle.Slice[int64](out, int64(len(values)))
	for i, v := range values {
		slots[i] = int64(v)
	}
}

func scheduleOf(h Object) *pipeline.Schedule {
	s, ok := handle.Object[*pipeline.Schedule](h)
	if !ok {
		panic(core.Errorf(core.TypeError, "schedule", "%d is not the handle of a schedule of a pipeline", h))
	}
	return s
}

// PipelineText returns a schedule as text.
func PipelineText(h Object) string {
	if s, ok := handle.Object[*pipeline.Schedule](h); ok {
		return s.String()
	}
	return ""
}

// PipelineSizes writes a schedule's number of stages, of micro-batches and of devices.
func PipelineSizes(h Object, out IntsOut) (status Status) {
	defer protect("schedule", &status)
	s := scheduleOf(h)
	writeInts(out, []int{s.Stages(), s.Micro(), len(s.Rows)})
	return 0
}

// PipelineDevices writes the number of the device of each stage of a schedule.
func PipelineDevices(h Object, out IntsOut) (status Status) {
	defer protect("schedule", &status)
	writeInts(out, scheduleOf(h).Devices())
	return 0
}

// PipelineFirst returns the schedule for the first micro-batches alone.
func PipelineFirst(h Object, micro int64) (status Object) {
	defer protect("schedule", &status)
	return handle.AddObject(scheduleOf(h).First(int(micro)))
}

// PipelineTransfers returns the schedule with its sends and receives.
func PipelineTransfers(h Object) (status Object) {
	defer protect("schedule", &status)
	s, err := scheduleOf(h).WithTransfers()
	if err != nil {
		return failure(err)
	}
	return handle.AddObject(s)
}

// PipelineValidate returns an error unless a schedule does everything once and in an order that ends.
func PipelineValidate(h Object) (status Status) {
	defer protect("schedule", &status)
	return failure(scheduleOf(h).Validate())
}

// costs reads the times of forward passes, gradients of inputs and gradients of weights, and the bytes kept, and those of them
// kept between the two halves of a backward pass, by stage; then the times of the links, and whether these keep the devices from
// computing; and of each tie its time, the number of its stages, and these. n is 0 for costs of 1.
func costs(a Floats, n int64, stages int) pipeline.Costs {
	if n == 0 {
		return pipeline.Costs{}
	}
	v := handle.Slice[float64](a, n)
	if len(v) < 6*stages {
		panic(core.Errorf(core.ValueError, "simulate", "got %d costs for %d stages, want %d", len(v), stages, 6*stages))
	}
	last := 6*stages - 1
	var ties []pipeline.Tie
	for rest := v[last+1:]; len(rest) > 0; {
		if len(rest) < 2 || !(rest[1] >= 0) || int(rest[1]) > len(rest)-2 {
			panic(core.Errorf(core.ValueError, "simulate", "got the costs %v of ties, want times, numbers of stages, and these", v[last+1:]))
		}
		y := pipeline.Tie{Time: rest[0]}
		for _, s := range rest[2 : 2+int(rest[1])] {
			y.Stages = append(y.Stages, int(s))
		}
		ties, rest = append(ties, y), rest[2+len(y.Stages):]
	}
	part := func(i int) []float64 { return append([]float64(nil), v[i*stages:min((i+1)*stages, last)]...) }
	return pipeline.Costs{Forward: part(0), Input: part(1), Weight: part(2), Saved: part(3), Rest: part(4), Link: part(5), NoOverlap: v[last] != 0, Ties: ties}
}

// PipelineSimulate returns the timeline of a schedule with the given costs: for the stages the times of forward passes, of
// gradients of inputs, of gradients of weights, the bytes kept, those kept between the latter two; for the links their times, and
// whether these keep the devices from computing; and for each tie its time, the number of its stages, and these. n is 0 for costs of 1.
func PipelineSimulate(h Object, a Floats, n int64) (status Object) {
	defer protect("simulate", &status)
	s := scheduleOf(h)
	t, err := s.Simulate(costs(a, n, s.Stages()))
	if err != nil {
		return failure(err)
	}
	return handle.AddObject(t)
}

// PipelineCheckMemory returns an error if a device would keep more than its limit; the costs are as for [PipelineSimulate].
func PipelineCheckMemory(h Object, a Floats, n int64, limits Floats, limitsLen int64) (status Status) {
	defer protect("schedule", &status)
	s := scheduleOf(h)
	return failure(s.CheckMemory(costs(a, n, s.Stages()), handle.Slice[float64](limits, limitsLen)))
}

func timeline(h Object) *pipeline.Timeline {
	t, ok := handle.Object[*pipeline.Timeline](h)
	if !ok {
		panic(core.Errorf(core.TypeError, "timeline", "%d is not the handle of a timeline", h))
	}
	return t
}

// TimelineName returns the name of a timeline.
func TimelineName(h Object) string {
	if t, ok := handle.Object[*pipeline.Timeline](h); ok {
		return t.Name
	}
	return ""
}

// TimelineSizes writes a timeline's number of spans, of devices and of stages.
func TimelineSizes(h Object, out IntsOut) (status Status) {
	defer protect("timeline", &status)
	t := timeline(h)
	spans := 0
	for _, row := range t.Spans {
		spans += len(row)
	}
	writeInts(out, []int{spans, len(t.Spans), len(t.LiveStage)})
	return 0
}

// TimelineTotals writes time and bubble of a timeline and then the most bytes of activations on each device to totals, and to live
// the most activations on each device and of each stage.
func TimelineTotals(h Object, totals FloatsOut, live IntsOut) (status Status) {
	defer protect("timeline", &status)
	t := timeline(h)
	out := handle.Slice[float64](totals, int64(2+len(t.Peak)))
	out[0], out[1] = t.Time, t.Bubble
	copy(out[2:], t.Peak)
	writeInts(live, append(append([]int(nil), t.Live...), t.LiveStage...))
	return 0
}

// TimelineSpans writes device, kind, stage and micro-batch of each span to what, and its beginning and end to when.
func TimelineSpans(h Object, what IntsOut, when FloatsOut) (status Status) {
	defer protect("timeline", &status)
	var ints []int
	var floats []float64
	for d, row := range timeline(h).Spans {
		for _, x := range row {
			ints = append(ints, d, int(x.Kind), x.Stage, x.Micro)
			floats = append(floats, x.Start, x.End)
		}
	}
	writeInts(what, ints)
	copy(handle.Slice[float64](when, int64(len(floats))), floats)
	return 0
}

// TimelinePlot returns an SVG image of n timelines, one below the other; of an unknown one nothing.
func TimelinePlot(hs Ints, n int64, unit string) string {
	var list []*pipeline.Timeline
	for _, h := range handle.Ints(hs, n) {
		if t, ok := handle.Object[*pipeline.Timeline](int64(h)); ok {
			list = append(list, t)
		}
	}
	return pipeline.Plot(unit, list...)
}

// PipelineBalance writes how many of n layers each of the parts has, so that the largest costs as little as possible.
func PipelineBalance(layers Floats, n, parts int64, out IntsOut) (status Status) {
	defer protect("pipeline", &status)
	sizes, err := pipeline.Balance(handle.Slice[float64](layers, n), int(parts))
	if err != nil {
		return failure(err)
	}
	writeInts(out, sizes)
	return 0
}

// PipelineCut writes how many of n samples each micro-batch has, of at most chunks, and returns how many there are.
func PipelineCut(n, chunks int64, out IntsOut) (status int64) {
	defer protect("pipeline", &status)
	if n < 0 || chunks < 1 {
		return failf(core.ValueError, "pipeline", "want at least one micro-batch of 0 samples or more, got %d of %d samples", chunks, n)
	}
	sizes := pipeline.Sizes(int(n), int(chunks))
	writeInts(out, sizes)
	return int64(len(sizes))
}

// TimelineCosts writes the times of the stages' forward passes, of the gradients of their inputs and of those of their weights, each
// the median over the micro-batches.
func TimelineCosts(h Object, out FloatsOut) (status Status) {
	defer protect("timeline", &status)
	t := timeline(h)
	c := t.Costs()
	slots := handle.Slice[float64](out, int64(3*len(t.LiveStage)))
	for i, list := range [][]float64{c.Forward, c.Input, c.Weight} {
		copy(slots[i*len(list):], list)
	}
	return 0
}
