package collective

// Reductions whose last addition runs on the GPU. The host joins the inputs of the other ranks, and the GPU adds that sum to its own
// tensor, which then need not be copied to the host.

import (
	"math"
	"slices"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/contract"
)

var addScaledKernel = core.Kernel("add_scaled.f32")

// splitOnDevice removes one input from the steps that the host joins: the input on the device that gets the result. That device adds it to
// the host's sum. The bits are those of a sum in rank order if the device's input is the last or there are only two, and if the device's
// arithmetic is exact. It is in float32: halving a sum is the same as adding halves.
func (j *job) splitOnDevice(s *step) {
	if s.op != contract.CombineSum || len(s.ins) < 2 || len(s.outs) != 1 || !j.staged(s.outs[0]) || j.piece(s.outs[0]).dtype != core.Float32 {
		return
	}
	if fraction, _ := math.Frexp(s.divisor); s.divisor != 0 && fraction != 0.5 {
		return
	}
	var home []int // inputs on the device
	for k, in := range s.ins {
		if j.staged(in) && j.stagers[in.rank].fromHost.Device() == j.stagers[s.outs[0].rank].fromHost.Device() {
			home = append(home, k)
		}
	}
	if len(home) != 1 || s.ins[home[0]].rank != s.outs[0].rank || home[0] != len(s.ins)-1 && len(s.ins) != 2 {
		return
	}
	own := s.ins[home[0]]
	s.onDevice, s.ins = &own, slices.Delete(slices.Clone(s.ins), home[0], home[0]+1)
}

// A deviceAdd is a part whose last addition runs on the device. The host's sum is uploaded to an addend buffer.
type deviceAdd struct {
	*part
	at int // offset in the addend buffer, in bytes
}

// allocAddends allocates an addend buffer per rank for the chunk's deviceAdds. It returns an error per rank.
func (c *chunk) allocAddends() (addends []core.Region, errs []error) {
	addends, errs = make([]core.Region, len(c.job.calls)), make([]error, len(c.job.calls))
	for i := range c.adds {
		a := &c.adds[i]
		buf := &addends[a.outs[0].rank]
		a.at = buf.Size
		buf.Size += (a.n*core.Float32.Size() + cacheLine - 1) &^ (cacheLine - 1)
	}
	for r := range addends {
		if addends[r].Size > 0 {
			addends[r].Memory, errs[r] = c.job.stagers[r].fromHost.Alloc(addends[r].Size)
		}
	}
	return addends, errs
}

// launchAdds launches the chunk's deviceAdds.
func (c *chunk) launchAdds() {
	j := c.job
	for _, a := range c.adds {
		r := a.outs[0].rank
		if c.stages[r] == nil {
			continue
		}
		stream, scale := j.stagers[r].fromHost, 1.0
		if a.divisor != 0 {
			scale = 1 / a.divisor
		}
		call := stream.Begin(addScaledKernel, j.name)
		call.AddWaits(pending(j.reads[r])...)
		call.AddWaits(pending(j.writes[r])...)
		call.OutBorrowed(j.borrowed(a.outs[0]), j.piece(a.outs[0]).at(a.from), a.n)
		call.InMemory(c.addends[r].Memory, core.Float32, a.at/core.Float32.Size(), a.n)
		call.InBorrowed(j.borrowed(*a.onDevice), j.piece(*a.onDevice).at(a.from), a.n).Float(scale)
		call.OnCancel = onCancel(j.calls)
		call.OnLaunch = func(done core.Event) { j.last[r] = done }
		stream.Launch(call)
	}
	for r, buf := range c.addends {
		if buf.Memory.Size > 0 {
			j.stagers[r].fromHost.Free(buf.Memory) // for later calls on the stream
		}
	}
}
