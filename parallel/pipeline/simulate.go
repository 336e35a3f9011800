package pipeline

import (
	"fmt"

	"github.com/plait-ml/plait/core"
)

// Costs are the times and sizes of a pipeline's passes and transfers, by stage. A nil list means the default for every stage.
type Costs struct {
	// Forward, Input and Weight are the times of Forward, InputGrad and WeightGrad in any unit; 1 if nil. Backward takes the sum of
	// Input and Weight.
	Forward, Input, Weight []float64
	// Link is the time of a transfer between stages s and s+1 in either direction; 0 if nil. Transfers of one link and direction run
	// one after the other and overlap with computation.
	Link []float64
	// NoOverlap says that devices cannot compute while they copy, like GPUs with one queue for both. A transfer then takes half of its
	// time on the sender, and half on the receiver before the pass that needs it.
	NoOverlap bool
	// Ties are the parameters that stages on several devices share.
	Ties []Tie
	// Saved are the bytes of activations that one micro-batch keeps in a stage for its backward pass; 1 if nil.
	Saved []float64
	// Rest are the bytes of these that WeightGrad still needs after InputGrad; all if nil.
	Rest []float64
}

// check returns an error if the lists do not fit the number of stages.
func (c Costs) check(stages int) error {
	for _, l := range []struct {
		name string
		list []float64
		n    int
	}{{"Forward", c.Forward, stages}, {"Input", c.Input, stages}, {"Weight", c.Weight, stages}, {"Link", c.Link, stages - 1}, {"Saved", c.Saved, stages}, {"Rest", c.Rest, stages}} {
		if l.list != nil && len(l.list) != l.n {
			return core.Errorf(core.ValueError, "simulate", "got %d costs in %s, want %d for %d stages", len(l.list), l.name, l.n, stages)
		}
		for _, v := range l.list {
			if !(v >= 0) {
				return core.Errorf(core.ValueError, "simulate", "got the cost %v in %s, want 0 or more", v, l.name)
			}
		}
	}
	for _, y := range c.Ties {
		if err := y.check(stages); err != nil {
			return err
		}
	}
	return nil
}

// costAt returns element i of the list, or the default if the list is nil.
func costAt(list []float64, i int, otherwise float64) float64 {
	if list == nil {
		return otherwise
	}
	return list[i]
}

// time returns the duration of an action.
func (c Costs) time(a Action) float64 {
	in, weight := costAt(c.Input, a.Stage, 1), costAt(c.Weight, a.Stage, 1)
	switch a.Kind {
	case Forward:
		return costAt(c.Forward, a.Stage, 1)
	case InputGrad:
		return in
	case WeightGrad:
		return weight
	}
	return in + weight
}

// A Span is an action with its start and end times.
type Span struct {
	Action
	Start, End float64
}

// A Timeline holds when the actions of a schedule run, predicted or measured.
type Timeline struct {
	Name string
	// Spans are the passes of each device.
	Spans [][]Span
	// Time is the time from the start of the first pass to the end of the last pass, or to the last sum of tied gradients if that is
	// later.
	Time float64
	// Bubble is the fraction of the devices' time in which they are idle.
	Bubble float64
	// Live is, for each device, the peak number of activations, counting one for each micro-batch in each stage.
	Live []int
	// LiveStage is the same for each stage.
	LiveStage []int
	// Peak is, for each device, the peak number of bytes of activations.
	Peak []float64
}

// Simulate predicts when the actions of the schedule run with the given costs. Sends and receives in the schedule do not affect
// the times: every transfer starts as soon as its tensor is computed.
func (s *Schedule) Simulate(c Costs) (*Timeline, error) {
	if s.hasTransfers() {
		s = s.Compute()
	}
	w := newDryRun(s, false)
	if err := c.check(w.table.stages); err != nil {
		return nil, err
	}
	t := &Timeline{Name: s.Name, Spans: make([][]Span, len(s.Rows))}
	end := make([]float64, w.table.size())
	arrive := make([]float64, w.table.size()) // arrival of the result at the stage that needs it
	up, down := make([]float64, w.table.stages), make([]float64, w.table.stages)
	free := make([]float64, len(s.Rows))
	err := w.run(func(d int, a Action) {
		start, receiving := free[d], 0.0
		w.dependencies(a, func(b Action) {
			at := end[w.table.index(b)]
			if w.device[b.Stage] != d {
				at = arrive[w.table.index(b)]
				if c.NoOverlap {
					receiving = costAt(c.Link, min(a.Stage, b.Stage), 0) / 2
				}
			}
			start = max(start, at)
		})
		start += receiving
		stop := start + c.time(a)
		free[d], end[w.table.index(a)] = stop, stop
		send := func(link, to int, ready []float64) {
			if w.device[to] == d {
				return
			}
			if took := costAt(c.Link, link, 0); c.NoOverlap {
				free[d] = stop + took/2
				ready[link] = free[d]
			} else {
				ready[link] = max(ready[link], stop) + took
			}
			arrive[w.table.index(a)] = ready[link]
		}
		switch {
		case a.Kind == Forward && a.Stage < w.table.stages-1:
			send(a.Stage, a.Stage+1, up)
		case (a.Kind == Backward || a.Kind == InputGrad) && a.Stage > 0:
			send(a.Stage-1, a.Stage-1, down)
		}
		t.Spans[d] = append(t.Spans[d], Span{a, start, stop})
	})
	if err != nil {
		return nil, err
	}
	t.setTime(s.tiesEnd(c, t.Spans, free))
	t.setMemory(s, c)
	return t, nil
}

// setTime computes Time and Bubble from the spans. end is the time of work after the last span.
func (t *Timeline) setTime(end float64) {
	busy := 0.0
	t.Time = end
	for _, row := range t.Spans {
		for _, x := range row {
			busy += x.End - x.Start
			t.Time = max(t.Time, x.End)
		}
	}
	if all := t.Time * float64(len(t.Spans)); all > 0 {
		t.Bubble = (all - busy) / all
	}
}

// setMemory computes Live, LiveStage and Peak.
func (t *Timeline) setMemory(s *Schedule, c Costs) {
	t.Live, t.Peak = make([]int, len(s.Rows)), make([]float64, len(s.Rows))
	t.LiveStage = make([]int, s.Stages())
	for d, row := range s.Rows {
		m := memoryCount{stages: make([]int, s.Stages())}
		for _, a := range row {
			m.begin(a, c)
			t.Live[d], t.Peak[d] = max(t.Live[d], m.live), max(t.Peak[d], m.bytes)
			t.LiveStage[a.Stage] = max(t.LiveStage[a.Stage], m.stages[a.Stage])
			m.end(a, c)
		}
	}
}

// memoryCount counts the activations that a device keeps.
type memoryCount struct {
	live   int
	bytes  float64
	stages []int
}

func (m *memoryCount) begin(a Action, c Costs) {
	if a.Kind == Forward {
		m.live++
		m.stages[a.Stage]++
		m.bytes += costAt(c.Saved, a.Stage, 1)
	}
}

func (m *memoryCount) end(a Action, c Costs) {
	saved := costAt(c.Saved, a.Stage, 1)
	rest := costAt(c.Rest, a.Stage, saved)
	switch a.Kind {
	case InputGrad:
		m.bytes -= saved - rest
		return
	case Backward:
		m.bytes -= saved
	case WeightGrad:
		m.bytes -= rest
	default:
		return
	}
	m.live--
	m.stages[a.Stage]--
}

// CheckMemory returns an error if a device would keep more bytes than its limit. The error names the first action that exceeds
// the limit, and the peak. Without costs the unit is one activation.
func (s *Schedule) CheckMemory(c Costs, limits []float64) error {
	if len(limits) != len(s.Rows) {
		return core.Errorf(core.ValueError, "schedule", "%s: got %d limits of memory for %d devices", s.Name, len(limits), len(s.Rows))
	}
	if err := c.check(s.Stages()); err != nil {
		return err
	}
	for d, row := range s.Rows {
		m := memoryCount{stages: make([]int, s.Stages())}
		peak, at := 0.0, -1
		for i, a := range row {
			m.begin(a, c)
			if peak = max(peak, m.bytes); at < 0 && m.bytes > limits[d] {
				at = i
			}
			m.end(a, c)
		}
		if at >= 0 {
			unit := "activations"
			if c.Saved != nil {
				unit = "bytes of activations"
			}
			return core.Errorf(core.ValueError, "schedule", "%s: device %d would keep %s %s at its peak, and more than its limit of %s from %v on",
				s.Name, d, formatNumber(peak), unit, formatNumber(limits[d]), row[at])
		}
	}
	return nil
}

func formatNumber(v float64) string { return fmt.Sprintf("%.6g", v) }
