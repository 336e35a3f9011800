package pipeline

import (
	"strings"

	"github.com/plait-ml/plait/core"
)

// A Schedule lists the actions of each device of a pipeline in order. Stage s passes its output to stage s+1. A device may have
// several stages.
type Schedule struct {
	Name string
	// Rows holds the actions of each device.
	Rows [][]Action
}

// Stages returns the number of stages.
func (s *Schedule) Stages() int {
	n := 0
	s.each(func(_ int, a Action) { n = max(n, a.Stage+1) })
	return n
}

// Micro returns the number of micro-batches.
func (s *Schedule) Micro() int {
	n := 0
	s.each(func(_ int, a Action) { n = max(n, a.Micro+1) })
	return n
}

// Devices returns the device of each stage, and -1 for a stage without actions.
func (s *Schedule) Devices() []int {
	devices := make([]int, s.Stages())
	for i := range devices {
		devices[i] = -1
	}
	s.each(func(d int, a Action) { devices[a.Stage] = d })
	return devices
}

func (s *Schedule) each(fn func(device int, a Action)) {
	for d, row := range s.Rows {
		for _, a := range row {
			fn(d, a)
		}
	}
}

// Splits reports whether backward passes are split into InputGrad and WeightGrad.
func (s *Schedule) Splits() bool {
	split := false
	s.each(func(_ int, a Action) { split = split || a.Kind == InputGrad })
	return split
}

// ForwardOnly returns the schedule without backward passes, for evaluation.
func (s *Schedule) ForwardOnly() *Schedule {
	out := &Schedule{Name: s.Name, Rows: make([][]Action, len(s.Rows))}
	for d, row := range s.Rows {
		for _, a := range row {
			if a.Kind == Forward || a.Kind == SendForward || a.Kind == RecvForward {
				out.Rows[d] = append(out.Rows[d], a)
			}
		}
	}
	return out
}

// String returns the schedule as text that [Parse] reads: a line with # and the name, then a line for each device with its
// actions, separated by commas.
func (s *Schedule) String() string {
	var b strings.Builder
	b.WriteString("# " + s.Name + "\n")
	for _, row := range s.Rows {
		for i, a := range row {
			if i > 0 {
				b.WriteByte(',')
			}
			b.WriteString(a.String())
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// Parse reads a schedule. Each line holds the actions of one device, separated by commas or spaces; empty fields are allowed.
// Lines that begin with # are comments, and the first of them before any actions is the name. Parse does not validate the
// schedule.
func Parse(text string) (*Schedule, error) {
	s := &Schedule{Name: "custom"}
	named := false
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if comment, ok := strings.CutPrefix(line, "#"); ok {
			if name := strings.TrimSpace(comment); !named && name != "" && len(s.Rows) == 0 {
				s.Name, named = name, true
			}
			continue
		}
		if line == "" {
			continue
		}
		row := []Action{}
		for cell := range strings.FieldsFuncSeq(line, func(r rune) bool { return r == ',' || r == ' ' || r == '\t' }) {
			a, err := ParseAction(cell)
			if err != nil {
				return nil, err
			}
			row = append(row, a)
		}
		s.Rows = append(s.Rows, row)
	}
	if len(s.Rows) == 0 {
		return nil, core.Errorf(core.ValueError, "schedule", "got a text without actions")
	}
	return s, nil
}
