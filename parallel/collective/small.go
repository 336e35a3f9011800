package collective

// Small collectives between processes. The inputs travel in the announcements, and every process computes its own outputs, so that an
// operation takes one message. Inputs that are not computed yet at the call follow as messages of their own.

import (
	"slices"
	"unsafe"

	"github.com/plait-ml/plait/core"
)

// smallLimit is the size up to which a rank's inputs travel in its announcement, in bytes.
const smallLimit = 16 << 10

// isSmall reports whether the inputs may travel in the announcement.
func (p *rankCall) isSmall() bool {
	if p.stagers.fromHost != nil {
		return false
	}
	total := 0
	for i := range p.op.Ins {
		if total += p.op.Ins[i].bytes(); total > smallLimit {
			return !p.op.reads(p.rank)
		}
	}
	return true
}

// reads reports whether the collective reads the inputs of a rank.
func (o *Operation) reads(rank int) bool {
	switch o.Kind {
	case KindBroadcast, KindScatter:
		return o.Root == rank
	case KindRecv:
		return false
	}
	return true
}

// readable reports whether the inputs are computed.
func (p *rankCall) readable() bool { return len(pending(p.reads)) == 0 }

// needs reports whether the process of some ranks needs input i of a rank: holds says which ranks live there.
func (o *Operation) needs(rank, i, ranks int, holds func(rank int) bool) bool {
	switch o.Kind {
	case KindBroadcast:
		return rank == o.Root
	case KindReduce, KindGather, KindSend:
		return holds(o.Root)
	case KindScatter, KindAllToAll:
		return holds(i)
	case KindReduceScatter:
		return holds(i / (len(o.Ins) / ranks))
	}
	return true
}

// withData appends the inputs of a call that the process to needs.
func (m *rendezvous) withData(w writer, p *rankCall, to int) writer {
	w = slices.Clip(w)
	for _, b := range p.ins {
		if err := b.Err(); err != nil {
			w.error(inputError(p, err))
			return w
		}
	}
	w.error(nil)
	for i := range p.op.Ins {
		if p.op.needs(p.rank, i, len(m.ranks), func(r int) bool { return m.home(r) == to }) {
			w.bytes(p.bytes(p.ins[i], &p.op.Ins[i]))
		} else {
			w.bytes(nil)
		}
	}
	return w
}

// inputError returns the error of an invalid input of p for other processes.
func inputError(p *rankCall, err error) error {
	kind, ok := core.KindOf(err)
	if !ok {
		kind = core.DistributedError
	}
	return core.Errorf(kind, p.op.label(), "an input of rank %d is not valid: %w", p.rank, err)
}

// bytes returns the memory of an input that the host can address.
func (p *rankCall) bytes(b *core.Borrowed, piece *Piece) []byte {
	region := b.Region(piece.From, piece.N)
	if region.Size == 0 {
		return nil
	}
	return unsafe.Slice((*byte)(host(region, false)), region.Size)
}

// readData reads what withData has written.
func (p *rankCall) readData(r *reader) {
	p.hasData = true
	if p.dataErr = r.error(); p.dataErr != nil {
		return
	}
	p.data = make([][]byte, len(p.op.Ins))
	for i := range p.data {
		if b := r.bytes(); len(b) > 0 {
			if p.data[i] = b; len(b) != p.op.Ins[i].bytes() {
				r.bad()
			}
		}
	}
}

// sendSmall sends the inputs of this process's calls that came too late for their announcements. With err they are not valid.
func (j *wireJob) sendSmall(err error) {
	m := j.rendezvous
	if j.key.sender != 0 {
		return // a send has no other inputs
	}
	for _, p := range j.calls {
		if !p.here() || p.hasData || !p.op.reads(p.rank) {
			continue
		}
		w := m.message(smallData)
		w.key(j.key)
		w.int(p.rank)
		for _, to := range m.peers {
			if err != nil {
				w := slices.Clip(w)
				w.error(err)
				m.world.post(to, w)
			} else {
				m.world.post(to, m.withData(w, p, to))
			}
		}
	}
}

// lacking returns the calls of other processes whose inputs are needed here and have not come.
func (j *wireJob) lacking() (calls []*rankCall) {
	for i := range j.plan {
		s := &j.plan[i]
		if !slices.ContainsFunc(s.outs, j.here) {
			continue
		}
		for _, in := range s.ins {
			if p := j.calls[in.rank]; !p.here() && !p.hasData && !slices.Contains(calls, p) {
				calls = append(calls, p)
			}
		}
	}
	return calls
}

// receiveSmall reads inputs that came after their announcement.
func (j *wireJob) receiveSmall(rank int, r *reader) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if rank >= len(j.calls) || j.calls[rank].here() || j.calls[rank].hasData {
		r.bad()
		return
	}
	p := j.calls[rank]
	if j.complete { // joinSmall is at work with the inputs that it needs
		p = &rankCall{rank: p.rank, op: p.op}
	}
	if p.readData(r); j.small {
		j.check()
	}
}

// check ends the wait for inputs once all have come. The job is locked.
func (j *wireJob) check() {
	if !j.complete && len(j.lacking()) == 0 {
		j.complete = true
		close(j.arrived)
	}
}

// joinSmall computes the outputs of this process. Those of invalid inputs fail. If the job has failed it computes none, and they are unchanged.
func (j *wireJob) joinSmall() {
	if err := j.failure(); err != nil {
		for _, p := range j.ownCalls() {
			for _, out := range p.outs {
				out.FailUnchanged(err)
			}
		}
		return
	}
	x := smallMemory{job: j, at: map[source]unsafe.Pointer{}}
	defer x.release()
	if total := j.smallBytes(); total > 0 {
		x.held = x.buffer(total)
	}
	for i := range j.plan {
		s := &j.plan[i]
		outs := j.own(s.outs)
		if len(outs) == 0 {
			continue
		}
		var err error
		sources := make([]unsafe.Pointer, s.count())
		for k := 0; k < len(sources) && err == nil; k++ {
			sources[k], err = x.part(s, k)
		}
		var targets []unsafe.Pointer
		for _, out := range outs {
			if err != nil {
				j.borrowed(out).Fail(err)
			} else {
				targets = append(targets, host(j.region(out, s.from, s.n), true))
			}
		}
		if err == nil {
			joinAll([]joinTask{{step: s, dtype: j.piece(s.ins[0]).dtype, n: s.n, sources: sources, targets: targets}})
		}
	}
}

// smallMemory is the memory from which a small job computes: this process's inputs, and copies of the others' for kernels.
type smallMemory struct {
	job     *wireJob
	held    []byte
	at      map[source]unsafe.Pointer // inputs of other processes, in held
	buffers []*hostBuffer
}

func (x *smallMemory) buffer(n int) []byte {
	b := buffers.get(n)
	x.buffers = append(x.buffers, b)
	return b.bytes
}

func (x *smallMemory) release() {
	for _, b := range x.buffers {
		b.release()
	}
}

// part returns the memory of a part of a step, joined if it has several inputs.
func (x *smallMemory) part(s *step, k int) (unsafe.Pointer, error) {
	part := s.part(k)
	list := make([]unsafe.Pointer, len(part))
	for i, in := range part {
		var err error
		if list[i], err = x.source(s, in); err != nil {
			return nil, err
		}
	}
	if len(list) == 1 {
		return list[0], nil
	}
	piece := x.job.piece(part[0])
	to := unsafe.Pointer(unsafe.SliceData(x.buffer(s.n * piece.dtype.Size())))
	joinAll([]joinTask{{step: &step{op: s.op}, dtype: piece.dtype, n: s.n, sources: list, targets: []unsafe.Pointer{to}}})
	return to, nil
}

// source returns the memory of an input.
func (x *smallMemory) source(s *step, in source) (unsafe.Pointer, error) {
	j := x.job
	p := j.calls[in.rank]
	if p.here() {
		return host(j.region(in, s.from, s.n), false), j.borrowed(in).Err()
	}
	switch {
	case p.dataErr != nil:
		return nil, p.dataErr
	case len(p.data) <= in.piece || p.data[in.piece] == nil:
		return nil, errMessage
	case x.at[in] == nil:
		x.at[in] = unsafe.Pointer(unsafe.SliceData(x.held))
		x.held = x.held[aligned(copy(x.held, p.data[in.piece])):]
	}
	return unsafe.Add(x.at[in], s.from*j.piece(in).dtype.Size()), nil
}

// smallBytes returns the size of the inputs of other processes.
func (j *wireJob) smallBytes() (total int) {
	for _, p := range j.calls {
		for _, b := range p.data {
			total += aligned(len(b))
		}
	}
	return total
}

// aligned rounds bytes up to a cache line.
func aligned(n int) int { return (n + cacheLine - 1) &^ (cacheLine - 1) }
