package collective

// Collectives of GPUs. The host cannot address their memory, so tensors are copied through stages in host memory, chunk by chunk.

import (
	"slices"
	"time"
	"unsafe"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/contract"
)

const (
	// chunkBytes is the size of a chunk. A chunk is copied to the host, joined and copied back, while its neighbours are in other stages of
	// this pipeline.
	chunkBytes = 8 << 20
	// joinedBytes limits what the host reads or writes per chunk. The chunks in flight of all ranks then fit into the caches of large
	// processors, where joining is twice as fast.
	joinedBytes = 16 << 20
)

// A job is a collective in which at least one rank has memory that the host cannot address. The host joins host memory and staged copies,
// in rank order, and the results are copied from stages to the devices.
type job struct {
	name     string
	calls    []*rankCall
	stagers  []stagers      // by rank
	reads    [][]core.Event // by rank, events that its input pieces wait for
	writes   [][]core.Event // by rank, events that its output pieces wait for
	chunks   []*chunk
	link     time.Duration // see linkTime
	began    bool
	relay    *relay
	number   uint64           // in the relay
	err      error            // why the job was cancelled, or nil
	last     []core.Event     // by rank, the end of the last call on its stream
	used     [][]core.Event   // by rank, the last reads of its memory: on its own stream, and on streams of other ranks on its device
	ends     []*deferredEvent // by rank: nothing uses its memory any more
	sendOnly []bool           // by rank: it only sends, so its end is the end of its fetches
}

// stagers are the streams of a rank whose memory the host cannot address; nil for others. Copies to the host have their own stream, because
// copies from the host may have to wait for an earlier collective.
type stagers struct{ toHost, fromHost core.Stager }

// A part is a range of elements of a step.
type part struct {
	*step
	from, n int
	fetched []int // by input, the index of its region among the rank's fetched ones; -1 if it is not fetched
}

// A chunk is the parts of a job that go through the host together.
type chunk struct {
	job     *job
	parts   []part
	fetched []core.Fetched // by rank
	fetches []core.Event   // by rank, the end of fetched
	errs    []error        // by rank, of its copies
	tasks   []joinTask
	copies  []deviceCopy  // parts that devices copy themselves
	adds    []deviceAdd   // parts that devices add themselves
	addends []core.Region // by rank, the addend buffers
	stages  []core.Stage  // by rank
	inPlace []bool        // by rank, whether the stage is the fetched memory
	stored  []core.Event
}

func newJob(name string, calls []*rankCall, stagers []stagers, plan []step) *job {
	n := len(calls)
	j := &job{name: name, calls: calls, stagers: stagers, link: linkTime(calls), last: make([]core.Event, n), sendOnly: make([]bool, n)}
	for r, p := range calls {
		j.reads, j.writes = append(j.reads, foreign(p.reads, calls)), append(j.writes, foreign(p.writes, calls))
		j.used = append(j.used, make([]core.Event, n))
		end := newDeferredEvent()
		end.job = j
		j.ends = append(j.ends, end)
		j.sendOnly[r] = stagers[r].fromHost != nil
	}
	for i := range plan {
		s := &plan[i]
		j.splitOnDevice(s)
		for _, out := range s.outs {
			j.sendOnly[out.rank] = false
			if j.sameDevice(s, out) {
				j.sendOnly[s.ins[0].rank] = false
			}
		}
	}
	j.cut(plan)
	return j
}

// blockedOn implements [deferring].
func (j *job) blockedOn() core.Event { return j.relay.BlockedOn(j.number) }

// cancel implements [deferring].
func (j *job) cancel(err error) { j.relay.Cancel(j.number, err) }

// cut splits the steps into chunks.
func (j *job) cut(plan []step) {
	var c *chunk
	space, left := 0, 0
	for i := range plan {
		s := &plan[i]
		size, each := j.piece(s.ins[0]).dtype.Size(), max(len(s.ins), len(s.outs))
		for from, end := s.from, s.from+s.n; from < end; {
			if c == nil || min(space, left/each) < cacheLine {
				c = &chunk{job: j}
				j.chunks = append(j.chunks, c)
				space, left = chunkBytes, joinedBytes
			}
			n := min(end-from, min(space, left/each)/cacheLine*cacheLine/size)
			c.parts = append(c.parts, part{step: s, from: from, n: n})
			used := (n*size + cacheLine - 1) &^ (cacheLine - 1)
			space, left = space-used, left-used*each
			from += n
		}
	}
}

func (j *job) piece(s source) *Piece {
	if s.out {
		return &j.calls[s.rank].op.Outs[s.piece]
	}
	return &j.calls[s.rank].op.Ins[s.piece]
}

func (j *job) borrowed(s source) *core.Borrowed {
	if s.out {
		return j.calls[s.rank].outs[s.piece]
	}
	return j.calls[s.rank].ins[s.piece]
}

// region returns the memory of the part in a piece.
func (j *job) region(s source, p *part) core.Region {
	return j.borrowed(s).Region(j.piece(s).at(p.from), p.n)
}

// staged reports whether the host cannot address the memory of a piece.
func (j *job) staged(s source) bool { return j.stagers[s.rank].fromHost != nil }

// A deviceCopy is a part that a device copies to one of its outputs itself.
type deviceCopy struct {
	*part
	out source
}

// sameDevice reports whether a part is copied to an output on the same device.
func (j *job) sameDevice(p *step, out source) bool {
	in := p.ins[0]
	return p.op == contract.CombineCopy && j.staged(in) && j.staged(out) &&
		j.stagers[in.rank].fromHost.Device() == j.stagers[out.rank].fromHost.Device()
}

// host returns the address of a region in host memory.
func host(s core.Region, write bool) unsafe.Pointer {
	s.Memory.Touch(write)
	return unsafe.Add(s.Memory.Ptr, s.Offset)
}

// fetch starts copying the chunk to stages.
func (c *chunk) fetch() {
	j := c.job
	c.fetched, c.fetches, c.errs = make([]core.Fetched, len(j.calls)), make([]core.Event, len(j.calls)), make([]error, len(j.calls))
	regions := make([][]core.Region, len(j.calls))
	for i := range c.parts {
		p := &c.parts[i]
		needed := false
		for _, out := range p.outs {
			needed = needed || !j.sameDevice(p.step, out)
		}
		for _, in := range p.ins {
			at := -1
			if needed && j.staged(in) {
				at = len(regions[in.rank])
				regions[in.rank] = append(regions[in.rank], j.region(in, p))
			}
			p.fetched = append(p.fetched, at)
		}
	}
	for r, list := range regions {
		if l := j.stagers[r].toHost; l != nil && !j.calls[0].op.Kind.reduces() {
			l.ExpectWait() // parameters are needed before each layer, sums of gradients only at the end
		}
		if len(list) > 0 {
			c.fetched[r], c.errs[r] = j.stagers[r].toHost.Fetch(list, onCancel(j.calls), pending(j.reads[r])...)
			c.fetches[r] = j.stagers[r].toHost.Record()
			j.used[r][r] = c.fetches[r]
			for _, s := range list {
				j.calls[r].count(s.Size)
			}
		}
	}
	if c == j.chunks[len(j.chunks)-1] {
		j.finish(true)
	}
}

// finish sets the end events of the ranks that only send, or of the others. A rank's event does not wait for copies of other devices.
func (j *job) finish(sends bool) {
	for r, end := range j.ends {
		if j.sendOnly[r] == sends {
			end.resolve(slices.DeleteFunc(append(j.used[r], j.last[r]), func(e core.Event) bool { return e == nil })...)
		}
	}
}

// prepare waits for the fetched regions and lists the work to join.
func (c *chunk) prepare() {
	j := c.job
	j.begin()
	for r, f := range c.fetched {
		if f != nil && c.errs[r] == nil {
			j.relay.BlockOn(c.fetches[r], j.number, func(time.Duration) bool {
				c.errs[r] = f.Wait()
				return true
			})
		}
	}
	if j.link > 0 {
		time.Sleep(j.link / time.Duration(len(j.chunks)))
	}
	sound := c.sound()
	stages, targets := c.place(sound)
	c.stages = stages
	for i, p := range sound {
		if len(targets[i]) == 0 {
			continue
		}
		w := joinTask{step: p.step, dtype: j.piece(p.ins[0]).dtype, n: p.n, targets: targets[i]}
		for k, in := range p.ins {
			if at := p.fetched[k]; at >= 0 {
				w.sources = append(w.sources, unsafe.Pointer(unsafe.SliceData(c.fetched[in.rank].Bytes(at))))
			} else {
				w.sources = append(w.sources, host(j.region(in, p), false))
			}
		}
		c.tasks = append(c.tasks, w)
	}
}

// store starts the copies from the stages and within devices. The works must be done, and earlier chunks must have stored: streams are in
// order, and events of a later job may depend on the end of an earlier one.
func (c *chunk) store() {
	j := c.job
	for r, f := range c.fetched {
		if f != nil && c.errs[r] == nil && !c.inPlace[r] {
			f.Release()
		}
	}
	for _, d := range c.copies {
		j.copy(d.part, d.out)
	}
	for r, s := range c.stages {
		if s != nil {
			j.last[r] = s.Store(func(err error) { c.fail(r, err) }, pending(j.writes[r])...)
		}
	}
	c.launchAdds()
	for r, s := range c.stages {
		if s != nil {
			c.stored = append(c.stored, j.last[r])
		}
	}
	if c == j.chunks[len(j.chunks)-1] {
		j.finish(false)
	}
}

// fail marks the outputs of rank r as failed, because the copies to them were cancelled.
func (c *chunk) fail(r int, err error) {
	onCancel(c.job.calls)(err)
	for i := range c.parts {
		for _, out := range c.parts[i].outs {
			if out.rank == r {
				c.job.borrowed(out).Fail(err)
			}
		}
	}
}

// begin waits until the host may use the memory that it can address.
func (j *job) begin() {
	if j.began {
		return
	}
	j.began = true
	for r, l := range j.stagers {
		if l.fromHost == nil {
			for _, e := range slices.Concat(j.reads[r], j.writes[r]) {
				if !e.Done() && j.err == nil {
					j.err = j.relay.BlockOn(e, j.number, e.WaitFor)
				}
			}
		}
	}
	if j.err != nil {
		onCancel(j.calls)(j.err)
	}
}

// sound returns the parts whose inputs are all valid. The outputs of the other parts fail.
func (c *chunk) sound() []*part {
	var list []*part
	for i := range c.parts {
		p := &c.parts[i]
		err := c.job.err
		for _, in := range p.ins {
			if err == nil {
				err = c.job.borrowed(in).Err()
			}
			if err == nil {
				err = c.errs[in.rank]
			}
		}
		if p.onDevice != nil && err == nil {
			err = c.job.borrowed(*p.onDevice).Err()
		}
		if err == nil {
			list = append(list, p)
			continue
		}
		for _, out := range p.outs {
			c.job.borrowed(out).Fail(err)
		}
	}
	return list
}

// place allocates the stages that the parts write to. It returns them, and the target addresses of each part.
func (c *chunk) place(parts []*part) (stages []core.Stage, targets [][]unsafe.Pointer) {
	j := c.job
	regions := make([][]core.Region, len(j.calls))
	for _, p := range parts {
		for _, out := range p.outs {
			if j.sameDevice(p.step, out) {
				c.copies = append(c.copies, deviceCopy{p, out})
				continue
			} else if !j.staged(out) {
				continue
			}
			region := j.region(out, p)
			if j.calls[out.rank].count(region.Size); p.onDevice != nil {
				c.adds = append(c.adds, deviceAdd{part: p})
			} else {
				regions[out.rank] = append(regions[out.rank], region)
			}
		}
	}
	stages, c.inPlace = make([]core.Stage, len(j.calls)), make([]bool, len(j.calls))
	// An all-reduce writes back to the fetched memory: it is joined in place and stays in the caches.
	whole := j.calls[0].op.Kind == KindAllReduce && len(parts) == len(c.parts)
	var errs []error
	c.addends, errs = c.allocAddends()
	for r, list := range regions {
		if c.addends[r].Size > 0 {
			list = append(list, c.addends[r]) // always last
		}
		if len(list) == 0 || errs[r] != nil {
			continue
		}
		if whole && c.fetched[r] != nil {
			if stages[r] = c.fetched[r].Back(j.stagers[r].fromHost); stages[r] != nil {
				c.inPlace[r] = true
				continue
			}
		}
		if stages[r], errs[r] = j.stagers[r].fromHost.Stage(list); errs[r] != nil {
			stages[r] = nil
		}
	}
	targets = make([][]unsafe.Pointer, len(parts))
	next, adds := make([]int, len(j.calls)), c.adds
	for i, p := range parts {
		for _, out := range p.outs {
			r := out.rank
			switch {
			case j.sameDevice(p.step, out):
			case !j.staged(out):
				targets[i] = append(targets[i], host(j.region(out, p), true))
			case errs[r] != nil:
				j.borrowed(out).Fail(errs[r])
			case p.onDevice != nil:
				targets[i] = append(targets[i], unsafe.Pointer(&stages[r].Bytes(len(regions[r]))[adds[0].at]))
			default:
				targets[i] = append(targets[i], unsafe.Pointer(unsafe.SliceData(stages[r].Bytes(next[r]))))
				next[r]++
			}
			if p.onDevice != nil {
				adds = adds[1:]
			}
		}
	}
	return stages, targets
}

// copy launches a copy of a part within a device.
func (j *job) copy(p *part, out source) {
	in := p.ins[0]
	stream := j.stagers[out.rank].fromHost
	call := stream.Begin(contract.Copy, j.name)
	call.AddWaits(pending(j.reads[in.rank])...)
	call.AddWaits(pending(j.writes[out.rank])...)
	call.OutBorrowed(j.borrowed(out), j.piece(out).at(p.from), p.n).InBorrowed(j.borrowed(in), j.piece(in).at(p.from), p.n)
	call.OnCancel = onCancel(j.calls)
	call.OnLaunch = func(done core.Event) {
		j.last[out.rank] = done
		if in.rank != out.rank {
			j.used[in.rank][out.rank] = done
		}
	}
	stream.Launch(call)
}
