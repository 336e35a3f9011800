package collective

// Transfers between processes whose devices reach each other: the process that owns a step runs it on its device, on the memory of all.
// Processes tell each other when their tensors are ready and when their steps have ended, as in other transfers.

import (
	"runtime"
	"slices"
	"time"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/contract"
)

// linked reports whether the devices of all calls reach each other. It is the same in all processes.
func linked(calls []*rankCall) bool {
	var sites []*site
	for _, p := range calls {
		switch {
		case len(p.op.Ins)+len(p.op.Outs) == 0: // it has no tensors
		case p.site == nil:
			return false
		default:
			sites = append(sites, p.site)
		}
	}
	return len(calls) <= maxDirect && len(sites) > 0 && !slices.ContainsFunc(sites, func(s *site) bool { return !s.reachesAll(sites) })
}

// assign finds this process's steps, and the processes whose memory they use or who use its memory.
func (j *wireJob) assign() {
	me := j.rendezvous.world.process
	for i := range j.plan {
		s := &j.plan[i]
		if len(s.ins) == 1 {
			s.owner = s.ins[0].rank // to write across a link is faster than to read
		}
		owner := j.home(s.owner)
		for _, piece := range slices.Concat(s.ins, s.outs) {
			switch process := j.home(piece.rank); {
			case process == owner:
			case owner == me:
				j.peers[process].sends++
			case process == me:
				j.peers[owner].receives++
			}
		}
		if owner != me {
			continue
		}
		if len(s.ins) == 1 { // what is in its place already is not copied
			in := j.piece(s.ins[0])
			s.outs = slices.DeleteFunc(slices.Clone(s.outs), func(out source) bool { return j.here(out) && sameMemory(*in, *j.piece(out)) })
		}
		if len(s.outs) > 0 {
			j.steps = append(j.steps, s)
		}
	}
}

// A place is where a piece lies in a block of shared memory, in bytes.
type place struct {
	block []byte
	at    int
}

// places returns the places of this process's pieces that have elements.
func (j *wireJob) places() (map[source]place, error) {
	all := map[source]place{}
	for i, p := range j.calls {
		if !p.here() || p.stream == nil {
			continue
		}
		d := p.stream.Device().(core.SharingDevice)
		for _, out := range []bool{false, true} {
			pieces := p.op.Ins
			if out {
				pieces = p.op.Outs
			}
			for k := range pieces {
				if pieces[k].N == 0 { // it may have no memory
					continue
				}
				s := source{i, k, out}
				region := j.region(s, 0, 0)
				block, at, err := d.Share(region.Memory)
				if err != nil {
					return nil, err
				}
				all[s] = place{block, at + region.Offset}
			}
		}
	}
	return all, nil
}

// places writes where pieces lie. A block is written once.
func (w *writer) places(all map[source]place) {
	var blocks []string
	numbers := map[string]int{}
	for _, p := range all {
		if _, known := numbers[string(p.block)]; !known {
			numbers[string(p.block)] = len(blocks)
			blocks = append(blocks, string(p.block))
		}
	}
	w.uint(uint64(len(blocks)))
	for _, b := range blocks {
		w.bytes([]byte(b))
	}
	w.uint(uint64(len(all)))
	for s, p := range all {
		w.uint(uint64(s.rank))
		w.uint(uint64(s.piece))
		w.bool(s.out)
		w.uint(uint64(numbers[string(p.block)]))
		w.uint(uint64(p.at))
	}
}

func (r *reader) places() map[source]place {
	blocks := make([][]byte, r.count())
	for i := range blocks {
		blocks[i] = r.bytes()
	}
	all := map[source]place{}
	for range r.count() {
		s := source{int(r.uint()), int(r.uint()), r.bool()}
		number, at := r.uint(), r.uint()
		if number >= uint64(len(blocks)) {
			r.bad()
			return nil
		}
		all[s] = place{blocks[number], int(at)}
	}
	return all
}

// linkedSpin is how long a linked job spins while it waits for another process, whose part may take less time than waking a thread.
const linkedSpin = 500 * time.Microsecond

// heard reports whether a message of another process has come, of which a channel tells. A linked job waits for it for a short while.
func (j *wireJob) heard(message <-chan struct{}) bool {
	var limit time.Time
	if j.linked && runtime.NumCPU() >= 4*len(j.calls) {
		limit = time.Now().Add(linkedSpin)
	}
	for {
		select {
		case <-message:
			return true
		default:
		}
		if !time.Now().Before(limit) {
			return false
		}
		j.rendezvous.world.transport.Progress()
		runtime.Gosched()
	}
}

// runSteps runs this process's steps and waits for their ends.
func (j *wireJob) runSteps() error {
	for process, p := range j.peers {
		if p.sends == 0 {
			continue
		}
		if j.awaitReady(process, p); p.refused != nil {
			return p.refused
		}
	}
	var used []core.Stream
	var failed error
	for _, steps := range j.batches() {
		p := j.calls[steps[0].owner]
		stream, err := p.streams.find(j.name, p.stream.Device(), everyone, direct)
		if err == nil {
			err = j.launchBatch(steps, stream)
		}
		if err != nil {
			failed = err
			break
		}
		if !slices.Contains(used, stream) {
			used = append(used, stream)
		}
	}
	for _, s := range used {
		s.Record().Wait()
		if err := s.Device().(core.SharingDevice).Lost(); failed == nil {
			failed = err
		}
	}
	if failed == nil {
		failed = j.outputFailure()
	}
	return failed
}

// outputFailure returns the failure of an output here that this process's steps have written.
func (j *wireJob) outputFailure() error {
	for _, s := range j.steps {
		for _, out := range j.own(s.outs) {
			if err := j.borrowed(out).Err(); err != nil {
				return err
			}
		}
	}
	return nil
}

// batches groups this process's steps for calls.
func (j *wireJob) batches() [][]*step {
	return batches(j.steps, func(s source) core.DType { return j.piece(s).dtype })
}

// launchBatch launches steps, by one call, on a stream of their owner's device.
func (j *wireJob) launchBatch(steps []*step, stream core.Stream) error {
	c := stream.Begin(contract.Combine, j.name)
	c.OnCancel = onCancel(j.ownCalls())
	for _, s := range steps {
		if err := j.fill(c, s); err != nil {
			stream.Abandon(c)
			return err
		}
	}
	steps[0].attrs(len(steps)).AddTo(c)
	stream.Launch(c)
	return nil
}

// fill adds the operands of a step to a call.
func (j *wireJob) fill(c *core.Call, s *step) error {
	for _, in := range s.ins {
		if j.here(in) {
			c.InBorrowed(j.borrowed(in), j.piece(in).From+s.from, s.n)
			continue
		}
		m, from, err := j.remote(s, in)
		if err != nil {
			return err
		}
		c.InMemory(m, j.piece(in).dtype, from, s.n)
	}
	for _, out := range s.outs {
		if j.here(out) {
			c.OutBorrowed(j.borrowed(out), j.piece(out).From+s.from, s.n)
			continue
		}
		m, from, err := j.remote(s, out)
		if err != nil {
			return err
		}
		c.OutMemory(m, j.piece(out).dtype, from, s.n)
	}
	return nil
}

// remote returns the memory of a piece of another process, and the element at which a step's part begins.
func (j *wireJob) remote(s *step, piece source) (core.Memory, int, error) {
	process := j.calls[piece.rank].process
	at, ok := j.peers[process].places[piece]
	size := j.piece(piece).dtype.Size()
	if !ok {
		return core.Memory{}, 0, core.Errorf(core.DistributedError, j.label, "process %d has not said where its tensors are", process)
	}
	sharing := j.rendezvous.world.sharing
	m, err := sharing.open(sharing.device(j.calls[s.owner].stream.Device()), at.block)
	if err == nil && (at.at%size != 0 || at.at+(s.from+s.n)*size > m.Size) {
		err = core.Errorf(core.DistributedError, j.label, "process %d has tensors outside its memory", process)
	}
	return m, at.at/size + s.from, err
}
