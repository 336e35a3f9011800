package pipeline

import (
	"slices"
	"strings"

	"github.com/plait-ml/plait/core"
)

// A maker makes the schedule of a name.
type maker struct {
	name string
	// chunks are the stages that each device has: 0 means what the caller says, at least one.
	chunks int
	make   func(devices, micro, chunks int) [][]Action
	// place says on which device a stage is.
	place func(stage, devices int) int
}

var makers = []maker{
	{"gpipe", 1, gpipe, around},
	{"1f1b", 1, oneForwardOneBackward, around},
	{"interleaved", 0, interleaved, around},
	{"looped-bfs", 0, loopedBFS, around},
	{"zb-h1", 0, zeroBubble, around},
	{"zb-v", 2, zeroBubbleV, vee},
}

// Names returns the names of the schedules that [New] knows.
func Names() []string {
	var names []string
	for _, m := range makers {
		names = append(names, m.name)
	}
	return names
}

// around places stages on one device after the other, again and again.
func around(stage, devices int) int { return stage % devices }

// vee places stages on one device after the other, and back.
func vee(stage, devices int) int { return min(stage, 2*devices-1-stage) }

func makerOf(name string) (maker, error) {
	i := slices.IndexFunc(makers, func(m maker) bool { return m.name == strings.ToLower(name) })
	if i < 0 {
		return maker{}, core.Errorf(core.ValueError, "schedule", "got %q, want one of %s", name, strings.Join(Names(), ", "))
	}
	return makers[i], nil
}

// Chunks returns how many stages each device has under the schedule of the given name, if the caller wants as many as chunks;
// an error if it cannot have so many. With chunks 0 it has as few as the schedule is made for.
func Chunks(name string, chunks int) (int, error) {
	m, err := makerOf(name)
	if err != nil {
		return 0, err
	}
	switch {
	case chunks < 0:
		return 0, core.Errorf(core.ValueError, "schedule", "got %d stages for each device", chunks)
	case m.chunks > 0 && chunks != 0 && chunks != m.chunks:
		return 0, core.Errorf(core.ValueError, "schedule", "%s has %d stages on each device, got %d", m.name, m.chunks, chunks)
	case m.chunks > 0:
		return m.chunks, nil
	case chunks > 0:
		return chunks, nil
	case m.name == "zb-h1":
		return 1, nil
	}
	return 2, nil
}

// New returns the schedule of the given name for micro micro-batches on some devices with chunks stages each, 0 for what
// [Chunks] says:
//
//   - gpipe: all forward passes, then all backward passes. Every activation is kept.
//   - 1f1b: a device begins a backward pass as soon as it can, so that at most as many micro-batches are alive in a stage as there
//     are stages from it to the end.
//   - interleaved: 1f1b with several stages on each device, the first ones of all before the second ones, which divides the
//     bubble by their number.
//   - looped-bfs: the same stages, each with all micro-batches before the next.
//   - zb-h1: 1f1b, or with several stages interleaved, in which gradients of weights fill the bubble at the end.
//   - zb-v: two stages on each device, the first and the last on the same, almost without a bubble.
func New(name string, devices, micro, chunks int) (*Schedule, error) {
	m, err := makerOf(name)
	if err != nil {
		return nil, err
	}
	if devices < 1 || micro < 1 {
		return nil, core.Errorf(core.ValueError, "schedule", "%s: got %d devices and %d micro-batches, want at least one", m.name, devices, micro)
	}
	if chunks, err = Chunks(name, chunks); err != nil {
		return nil, err
	}
	return &Schedule{Name: m.name, Rows: m.make(devices, micro, chunks)}, nil
}

// Place returns the device of each stage under the schedule of the given name.
func Place(name string, devices, chunks int) ([]int, error) {
	m, err := makerOf(name)
	if err != nil {
		return nil, err
	}
	place := make([]int, devices*chunks)
	for s := range place {
		place[s] = m.place(s, devices)
	}
	return place, nil
}

// gpipe follows Huang et al. 2019.
func gpipe(devices, micro, _ int) [][]Action {
	rows := make([][]Action, devices)
	for d := range rows {
		for i := range micro {
			rows[d] = append(rows[d], Action{Forward, d, i})
		}
		for i := range micro {
			rows[d] = append(rows[d], Action{Backward, d, i})
		}
	}
	return rows
}

// oneForwardOneBackward follows Narayanan et al. 2021: warm-up, pairs, drain.
func oneForwardOneBackward(devices, micro, _ int) [][]Action {
	rows := make([][]Action, devices)
	for d := range rows {
		p := passes{forward: oneStage(d, micro), backward: oneStage(d, micro)}
		rows[d] = p.pairs(min(micro, devices-1-d))
	}
	return rows
}

// oneStage lists a stage's micro-batches in order.
func oneStage(stage, micro int) []Action {
	list := make([]Action, micro)
	for i := range list {
		list[i] = Action{Stage: stage, Micro: i}
	}
	return list
}

// loopedBFS follows Lamy-Poirier 2022.
func loopedBFS(devices, micro, chunks int) [][]Action {
	rows := make([][]Action, devices)
	for d := range rows {
		for c := range chunks {
			for i := range micro {
				rows[d] = append(rows[d], Action{Forward, c*devices + d, i})
			}
		}
		for c := chunks - 1; c >= 0; c-- {
			for i := range micro {
				rows[d] = append(rows[d], Action{Backward, c*devices + d, i})
			}
		}
	}
	return rows
}

// passes are the stages and micro-batches of a device's forward passes, and of its backward passes, in their order.
type passes struct{ forward, backward []Action }

// pairs returns warm forward passes, then one forward and one backward in turn, then the other backward passes.
func (p passes) pairs(warm int) []Action {
	var row []Action
	for i := range len(p.forward) + warm {
		if i < len(p.forward) {
			row = append(row, Action{Forward, p.forward[i].Stage, p.forward[i].Micro})
		}
		if j := i - warm; j >= 0 && j < len(p.backward) {
			row = append(row, Action{Backward, p.backward[j].Stage, p.backward[j].Micro})
		}
	}
	return row
}
