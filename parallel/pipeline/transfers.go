package pipeline

import (
	"cmp"
	"slices"
)

// WithTransfers returns the schedule with a send and a receive for every tensor that moves to another device. They are in the
// order in which the tensors are computed if every pass takes the same time. This order is the same on all devices, so the
// schedule cannot deadlock even if sends block.
func (s *Schedule) WithTransfers() (*Schedule, error) {
	order, err := s.order()
	if err != nil {
		return nil, err
	}
	out := &Schedule{Name: s.Name, Rows: make([][]Action, len(s.Rows))}
	device := s.Devices()
	last := len(device) - 1
	add := func(a Action) { out.Rows[device[a.Stage]] = append(out.Rows[device[a.Stage]], a) }
	for _, a := range order {
		add(a)
		send := Action{SendForward, a.Stage, a.Micro}
		switch {
		case a.Kind == Forward && a.Stage < last:
		case (a.Kind == Backward || a.Kind == InputGrad) && a.Stage > 0:
			send.Kind = SendBackward
		default:
			continue
		}
		if other := send.peer(); device[other.Stage] != device[a.Stage] {
			add(send)
			add(other)
		}
	}
	return out, nil
}

// Compute returns the schedule without sends and receives.
func (s *Schedule) Compute() *Schedule {
	out := &Schedule{Name: s.Name, Rows: make([][]Action, len(s.Rows))}
	for d, row := range s.Rows {
		for _, a := range row {
			if a.Kind.Computes() {
				out.Rows[d] = append(out.Rows[d], a)
			}
		}
	}
	return out
}

// order returns the passes of all devices in the order in which they begin if every pass takes the same time.
func (s *Schedule) order() ([]Action, error) {
	t, err := s.Simulate(Costs{})
	if err != nil {
		return nil, err
	}
	var all []Span
	for _, row := range t.Spans {
		all = append(all, row...)
	}
	slices.SortStableFunc(all, func(a, b Span) int { return cmp.Compare(a.Start, b.Start) })
	order := make([]Action, len(all))
	for i, x := range all {
		order[i] = x.Action
	}
	return order, nil
}
