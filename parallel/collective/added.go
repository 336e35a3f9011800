package collective

// A GPU adds the sum of the other ranks, which arrives in memory of its own, to the tensor that it has, where the order of the ranks allows
// that: its own tensor then need not go through the host.

import (
	"math"
	"slices"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/contract"
)

var addScaledKernel = core.Kernel("add_scaled.f32")

// leave has the host join all inputs of a step but that of the device that gets the result. This device adds its own to the rest: it
// need not go through the host. The bits are those of a sum in the order of the ranks if the device's input is the last or
// there are two, and if the device's arithmetic is exact: in float32, where halves of a sum are a sum of halves.
func (j *job) leave(s *step) {
	if s.op != contract.CombineSum || len(s.ins) < 2 || len(s.outs) != 1 || !j.away(s.outs[0]) || j.piece(s.outs[0]).Tensor.DType() != core.Float32 {
		return
	}
	if fraction, _ := math.Frexp(s.divisor); s.divisor != 0 && fraction != 0.5 {
		return
	}
	var home []int // inputs on the device
	for k, in := range s.ins {
		if j.away(in) && j.lanes[in.rank].entering.Device() == j.lanes[s.outs[0].rank].entering.Device() {
			home = append(home, k)
		}
	}
	if len(home) != 1 || s.ins[home[0]].rank != s.outs[0].rank || home[0] != len(s.ins)-1 && len(s.ins) != 2 {
		return
	}
	own := s.ins[home[0]]
	s.added, s.ins = &own, slices.Delete(slices.Clone(s.ins), home[0], home[0]+1)
}

// An add is a part that a device adds to what it has: the rest arrives in memory of its own.
type add struct {
	*part
	at int // where in it, in bytes
}

// makeRoom returns the regions of what is to be added, one for each post, or what kept it from having memory.
func (c *chunk) makeRoom() (rooms []core.Region, errs []error) {
	rooms, errs = make([]core.Region, len(c.job.posts)), make([]error, len(c.job.posts))
	for i := range c.adds {
		a := &c.adds[i]
		room := &rooms[a.outs[0].rank]
		a.at = room.Size
		room.Size += (a.n*core.Float32.Size() + line - 1) &^ (line - 1)
	}
	for r := range rooms {
		if rooms[r].Size > 0 {
			rooms[r].Memory, errs[r] = c.job.lanes[r].entering.Alloc(rooms[r].Size)
		}
	}
	return rooms, errs
}

// add has devices add what has arrived.
func (c *chunk) add() {
	j := c.job
	for _, a := range c.adds {
		r := a.outs[0].rank
		if c.stages[r] == nil {
			continue
		}
		stream, scale := j.lanes[r].entering, 1.0
		if a.divisor != 0 {
			scale = 1 / a.divisor
		}
		call := stream.Begin(addScaledKernel, j.name)
		call.AddWaits(pending(j.reads[r])...)
		call.AddWaits(pending(j.writes[r])...)
		call.OutBorrowed(j.loan(a.outs[0]), j.piece(a.outs[0]).From+a.from, a.n)
		call.InMemory(c.rooms[r].Memory, core.Float32, a.at/core.Float32.Size(), a.n)
		call.InBorrowed(j.loan(*a.added), j.piece(*a.added).From+a.from, a.n).Float(scale)
		call.Placed = func(done core.Event) { j.last[r] = done }
		stream.Launch(call)
	}
	for r, room := range c.rooms {
		if room.Memory.Size > 0 {
			j.lanes[r].entering.Free(room.Memory) // to what comes later on the stream
		}
	}
}
