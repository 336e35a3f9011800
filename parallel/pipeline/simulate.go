package pipeline

import (
	"fmt"

	"github.com/plait-ml/plait/core"
)

// Costs are what a pipeline's passes and transfers take, by stage; nil means the same for all.
type Costs struct {
	// Forward, Input and Weight are the times of a stage's forward pass, of the gradient of its input and of those of its
	// weights, in any unit; 1 if nil. A whole backward pass takes the last two.
	Forward, Input, Weight []float64
	// Link is the time that a tensor takes from stage s to s+1, or back; 0 if nil. Tensors of one link and direction follow one
	// another, while the devices go on.
	Link []float64
	// NoOverlap says that devices compute nothing while they copy, such as GPUs with one queue for both: a transfer takes the first
	// half of its time from the device that sends, and the second from the one that receives, before the pass that needs it.
	NoOverlap bool
	// Ties are the tensors that stages on several devices share.
	Ties []Tie
	// Saved are the bytes that a micro-batch in a stage keeps for its backward pass; 1 if nil.
	Saved []float64
	// Rest are those of them that it still needs for the gradients of its weights; all if nil.
	Rest []float64
}

// check returns an error unless the lists fit so many stages.
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

func of(list []float64, i int, otherwise float64) float64 {
	if list == nil {
		return otherwise
	}
	return list[i]
}

// time returns how long an action takes.
func (c Costs) time(a Action) float64 {
	in, weight := of(c.Input, a.Stage, 1), of(c.Weight, a.Stage, 1)
	switch a.Kind {
	case Forward:
		return of(c.Forward, a.Stage, 1)
	case InputGrad:
		return in
	case WeightGrad:
		return weight
	}
	return in + weight
}

// A Span is an action and the times at which it begins and ends.
type Span struct {
	Action
	Start, End float64
}

// A Timeline is what a schedule comes to, predicted or measured.
type Timeline struct {
	Name string
	// Spans are the passes of each device.
	Spans [][]Span
	// Time is from the beginning of the first pass to the end of the last, or until the last gradient of a tied tensor has been
	// added, if that is later.
	Time float64
	// Bubble is the part of the devices' time in which they do nothing.
	Bubble float64
	// Live are by device the most activations that it keeps at a time, one for each micro-batch in each of its stages.
	Live []int
	// LiveStage are the same by stage.
	LiveStage []int
	// Peak are by device the most bytes that these keep.
	Peak []float64
}

// Simulate returns what the schedule comes to with passes and transfers of given costs. Transfers in the schedule say nothing
// about time: every tensor sets out when it is made.
func (s *Schedule) Simulate(c Costs) (*Timeline, error) {
	if s.sends() {
		s = s.Compute()
	}
	w := newWalk(s, false)
	if err := c.check(w.t.stages); err != nil {
		return nil, err
	}
	t := &Timeline{Name: s.Name, Spans: make([][]Span, len(s.Rows))}
	end := make([]float64, w.t.len())
	arrive := make([]float64, w.t.len()) // at the next stage
	up, down := make([]float64, w.t.stages), make([]float64, w.t.stages)
	free := make([]float64, len(s.Rows))
	err := w.run(func(d int, a Action) {
		start, receiving := free[d], 0.0
		w.needs(a, func(b Action) {
			at := end[w.t.at(b)]
			if w.device[b.Stage] != d {
				at = arrive[w.t.at(b)]
				if c.NoOverlap {
					receiving = of(c.Link, min(a.Stage, b.Stage), 0) / 2
				}
			}
			start = max(start, at)
		})
		start += receiving
		stop := start + c.time(a)
		free[d], end[w.t.at(a)] = stop, stop
		send := func(link, to int, ready []float64) {
			if w.device[to] == d {
				return
			}
			if took := of(c.Link, link, 0); c.NoOverlap {
				free[d] = stop + took/2
				ready[link] = free[d]
			} else {
				ready[link] = max(ready[link], stop) + took
			}
			arrive[w.t.at(a)] = ready[link]
		}
		switch {
		case a.Kind == Forward && a.Stage < w.t.stages-1:
			send(a.Stage, a.Stage+1, up)
		case (a.Kind == Backward || a.Kind == InputGrad) && a.Stage > 0:
			send(a.Stage-1, a.Stage-1, down)
		}
		t.Spans[d] = append(t.Spans[d], Span{a, start, stop})
	})
	if err != nil {
		return nil, err
	}
	t.finish(s.tied(c, t.Spans, free))
	t.remember(s, c)
	return t, nil
}

// finish fills in time and bubble, of the spans and of what has ended after them.
func (t *Timeline) finish(end float64) {
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

// remember fills in what the devices keep.
func (t *Timeline) remember(s *Schedule, c Costs) {
	t.Live, t.Peak = make([]int, len(s.Rows)), make([]float64, len(s.Rows))
	t.LiveStage = make([]int, s.Stages())
	for d, row := range s.Rows {
		m := memory{stages: make([]int, s.Stages())}
		for _, a := range row {
			m.before(a, c)
			t.Live[d], t.Peak[d] = max(t.Live[d], m.live), max(t.Peak[d], m.bytes)
			t.LiveStage[a.Stage] = max(t.LiveStage[a.Stage], m.stages[a.Stage])
			m.after(a, c)
		}
	}
}

// memory counts what a device keeps.
type memory struct {
	live   int
	bytes  float64
	stages []int
}

func (m *memory) before(a Action, c Costs) {
	if a.Kind == Forward {
		m.live++
		m.stages[a.Stage]++
		m.bytes += of(c.Saved, a.Stage, 1)
	}
}

func (m *memory) after(a Action, c Costs) {
	saved := of(c.Saved, a.Stage, 1)
	rest := of(c.Rest, a.Stage, saved)
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

// CheckMemory returns an error if a device would keep more bytes than its limit; it names the first action at which it would, and
// the peak. Without costs the unit is an activation.
func (s *Schedule) CheckMemory(c Costs, limits []float64) error {
	if len(limits) != len(s.Rows) {
		return core.Errorf(core.ValueError, "schedule", "%s: got %d limits of memory for %d devices", s.Name, len(limits), len(s.Rows))
	}
	if err := c.check(s.Stages()); err != nil {
		return err
	}
	for d, row := range s.Rows {
		m := memory{stages: make([]int, s.Stages())}
		peak, at := 0.0, -1
		for i, a := range row {
			m.before(a, c)
			if peak = max(peak, m.bytes); at < 0 && m.bytes > limits[d] {
				at = i
			}
			m.after(a, c)
		}
		if at >= 0 {
			unit := "activations"
			if c.Saved != nil {
				unit = "bytes of activations"
			}
			return core.Errorf(core.ValueError, "schedule", "%s: device %d would keep %s %s at its peak, and more than its limit of %s from %v on",
				s.Name, d, number(peak), unit, number(limits[d]), row[at])
		}
	}
	return nil
}

func number(v float64) string { return fmt.Sprintf("%.6g", v) }
