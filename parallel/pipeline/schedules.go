package pipeline

import (
	"slices"
	"strings"

	"github.com/plait-ml/plait/core"
)

// A builder builds the schedules of one name.
type builder struct {
	name string
	// chunks is the number of stages on each device; 0 means that the caller chooses it.
	chunks int
	build  func(devices, micro, chunks int) [][]Action
	// place returns the device of a stage.
	place func(stage, devices int) int
}

var builders = []builder{
	{"gpipe", 1, gpipe, loopPlacement},
	{"1f1b", 1, oneForwardOneBackward, loopPlacement},
	{"interleaved", 0, interleaved, loopPlacement},
	{"looped-bfs", 0, loopedBFS, loopPlacement},
	{"zb-h1", 0, zeroBubble, loopPlacement},
	{"zb-v", 2, zeroBubbleV, vPlacement},
}

// Names returns the names of the schedules that [New] knows.
func Names() []string {
	var names []string
	for _, m := range builders {
		names = append(names, m.name)
	}
	return names
}

// loopPlacement places stages on the devices in order, then begins again with the first device.
func loopPlacement(stage, devices int) int { return stage % devices }

// vPlacement places stages on the devices in order, then in reverse order: the first and the last stage share a device.
func vPlacement(stage, devices int) int { return min(stage, 2*devices-1-stage) }

func builderOf(name string) (builder, error) {
	i := slices.IndexFunc(builders, func(m builder) bool { return m.name == strings.ToLower(name) })
	if i < 0 {
		return builder{}, core.Errorf(core.ValueError, "schedule", "got %q, want one of %s", name, strings.Join(Names(), ", "))
	}
	return builders[i], nil
}

// Chunks returns the number of stages on each device for a schedule. chunks is the number the caller wants, and 0 means the
// default. It is an error if the schedule cannot have that many.
func Chunks(name string, chunks int) (int, error) {
	m, err := builderOf(name)
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

// New builds the schedule of the given name for a number of devices and micro-batches, with chunks stages on each
// device; 0 means the default of [Chunks]:
//
//   - gpipe: all forward passes, then all backward passes. All activations are kept until then.
//   - 1f1b: each device begins backward passes as early as possible, so that a stage keeps the activations of at most as many
//     micro-batches as there are stages from it to the last.
//   - interleaved: 1f1b with several stages on each device, which divides the bubble by their number.
//   - looped-bfs: several stages on each device; each stage runs all micro-batches before the next stage begins.
//   - zb-h1: 1f1b, or interleaved with several stages, with WeightGrad in the bubble at the end (zero bubble, H1).
//   - zb-v: two stages on each device in a V, the first and the last on the same device, with almost no bubble.
func New(name string, devices, micro, chunks int) (*Schedule, error) {
	m, err := builderOf(name)
	if err != nil {
		return nil, err
	}
	if devices < 1 || micro < 1 {
		return nil, core.Errorf(core.ValueError, "schedule", "%s: got %d devices and %d micro-batches, want at least one", m.name, devices, micro)
	}
	if chunks, err = Chunks(name, chunks); err != nil {
		return nil, err
	}
	return &Schedule{Name: m.name, Rows: m.build(devices, micro, chunks)}, nil
}

// Place returns the device of each stage under the schedule of the given name.
func Place(name string, devices, chunks int) ([]int, error) {
	m, err := builderOf(name)
	if err != nil {
		return nil, err
	}
	place := make([]int, devices*chunks)
	for s := range place {
		place[s] = m.place(s, devices)
	}
	return place, nil
}

// gpipe builds the schedule of Huang et al. 2019.
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

// oneForwardOneBackward builds the 1F1B schedule of Narayanan et al. 2021: warm-up, steady state, cooldown.
func oneForwardOneBackward(devices, micro, _ int) [][]Action {
	rows := make([][]Action, devices)
	for d := range rows {
		p := passes{forward: microBatches(d, micro), backward: microBatches(d, micro)}
		rows[d] = p.oneForwardOneBackward(min(micro, devices-1-d))
	}
	return rows
}

// microBatches lists the micro-batches of a stage in order.
func microBatches(stage, micro int) []Action {
	list := make([]Action, micro)
	for i := range list {
		list[i] = Action{Stage: stage, Micro: i}
	}
	return list
}

// loopedBFS builds the breadth-first schedule of Lamy-Poirier 2022.
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

// passes are the forward passes and the backward passes of a device, each in order. The kinds of the actions are not set.
type passes struct{ forward, backward []Action }

// oneForwardOneBackward merges the passes: warm forward passes as warm-up, then one forward and one backward pass in turn, then
// the remaining backward passes.
func (p passes) oneForwardOneBackward(warm int) []Action {
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
