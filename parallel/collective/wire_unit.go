package collective

// The data of a wireJob: who sends what to whom, and the sums.

import (
	"encoding/binary"
	"slices"

	"github.com/plait-ml/plait/core"
)

const (
	// reduceChunk is the number of bytes of each rank that are summed at a time, while others are on the wire. With many ranks it is smaller,
	// because the inputs of all of them are in memory.
	reduceChunk      = 256 << 10
	reduceChunkTotal = 16 << 20
	// copyChunk is the number of bytes that are sent at a time where nothing is summed.
	copyChunk = 4 << 20
	// packedBytes is the number of bytes up to which parts of several tensors travel in one message, which costs more than their copies.
	packedBytes = 64 << 10
	// tagMask limits tags to the bits that transports have.
	tagMask = 1<<24 - 1
)

// A wireUnit is a chunk of a step as seen from one process, or small chunks of several steps between the same ranks. The inputs of all ranks, or
// what each process has joined of them, go to the process that owns the unit. It joins them, in rank order, and sends the results to every
// process that has outputs.
type wireUnit struct {
	chunks  []wireChunk
	size    int           // bytes of each message
	owner   int           // the process
	inputs  []wireMessage // inputs of this process's ranks to the owner; at the owner, those of other ranks
	results []wireMessage // from the owner to this process; at the owner, to others
}

// A wireChunk is a part of a step.
type wireChunk struct {
	*step
	from, n int
	dtype   core.DType
	size    int // bytes
	at      int // where it begins in the unit's messages
}

// A wireMessage is data between this process and another one.
type wireMessage struct {
	peer   int
	number int // among the messages of the job to its receiver
	input  int // number of the part in the step, of an input
}

// cut returns the units in which this process takes part, and counts its messages. The order and the numbers of messages follow from the
// plan, so they agree in all processes. Chunks of all owners alternate.
func (j *wireJob) cut() (units []*wireUnit, received int) {
	counts := map[int]int{}
	packs := map[string]*wireUnit{} // the last unit of small chunks between some ranks
	for k, more := 0, true; more; k++ {
		more = false
		for i := range j.plan {
			s := &j.plan[i]
			dtype := j.piece(s.ins[0]).dtype
			most := s.chunk(dtype.Size())
			if k*most >= s.n {
				continue
			}
			more = true
			c := wireChunk{step: s, from: s.from + k*most, n: min(most, s.n-k*most), dtype: dtype}
			c.size = c.n * dtype.Size()
			var pack string
			if c.size <= packedBytes {
				pack = j.between(s)
				if u := packs[pack]; u != nil && aligned(u.size)+c.size <= min(most*dtype.Size(), reduceChunk) {
					c.at = aligned(u.size)
					u.chunks, u.size = append(u.chunks, c), c.at+c.size
					continue
				}
			}
			u := j.unit(c, counts)
			if pack != "" {
				packs[pack] = u
			}
			if len(u.inputs) > 0 || len(u.results) > 0 || j.rendezvous.world.process == u.owner && len(j.own(s.outs)) > 0 {
				units = append(units, u)
			}
		}
	}
	for _, u := range units {
		sends, receives := u.inputs, u.results
		if j.rendezvous.world.process == u.owner {
			sends, receives = u.results, u.inputs
		}
		for _, x := range sends {
			j.peers[x.peer].sends++
		}
		for _, x := range receives {
			j.peers[x.peer].receives++
		}
	}
	return units, counts[j.rendezvous.world.process]
}

// unit returns the unit of a chunk, and counts the messages that each process receives for it.
func (j *wireJob) unit(c wireChunk, counts map[int]int) *wireUnit {
	me := j.rendezvous.world.process
	u := &wireUnit{chunks: []wireChunk{c}, size: c.size, owner: j.ownerOf(c.step)}
	number := func(to int) int {
		counts[to]++
		return counts[to] - 1
	}
	for in := range c.count() {
		from := j.home(c.part(in)[0].rank)
		if from == u.owner {
			continue
		}
		n := number(u.owner)
		if me == u.owner {
			u.inputs = append(u.inputs, wireMessage{from, n, in})
		} else if me == from {
			u.inputs = append(u.inputs, wireMessage{u.owner, n, in})
		}
	}
	var told []int
	for _, out := range c.outs {
		to := j.home(out.rank)
		if to == u.owner || slices.Contains(told, to) {
			continue
		}
		told = append(told, to)
		n := number(to)
		if me == u.owner {
			u.results = append(u.results, wireMessage{to, n, 0})
		} else if me == to {
			u.results = append(u.results, wireMessage{u.owner, n, 0})
		}
	}
	return u
}

// ownerOf returns the process that joins the inputs of a step.
func (j *wireJob) ownerOf(s *step) int {
	if len(s.ins) == 1 {
		return j.home(s.ins[0].rank)
	}
	return j.home(s.owner)
}

// between describes the ranks of a step: chunks of steps with the same ones may share a unit.
func (j *wireJob) between(s *step) string {
	key := binary.AppendUvarint(nil, uint64(j.ownerOf(s)))
	for k := range s.count() {
		part := s.part(k)
		key = binary.AppendUvarint(key, uint64(len(part)))
		for _, in := range part {
			key = binary.AppendUvarint(key, uint64(in.rank))
		}
	}
	for _, out := range s.outs {
		key = binary.AppendUvarint(key, uint64(out.rank))
	}
	return string(key)
}

// home returns the process of a call.
func (j *wireJob) home(call int) int { return j.rendezvous.home(j.calls[call].rank) }

// chunk returns the elements of a step that are sent at a time.
func (s *step) chunk(size int) int {
	bytes := copyChunk
	if n := len(s.ins); n > 1 {
		bytes = min(reduceChunk, reduceChunkTotal/n)
	}
	return max(bytes/cacheLine, 1) * cacheLine / size
}

// runUnit carries out a unit and calls done. All transfers take place also after an error, because the other processes expect them.
func (j *wireJob) runUnit(u *wireUnit, tag uint32, done func(err error)) {
	x := &unitMemory{job: j, unit: u}
	end := func() {
		x.release()
		done(x.err)
	}
	if j.rendezvous.world.process == u.owner {
		x.own(tag, end)
		return
	}
	sources := x.sources(func(k int) bool {
		return slices.ContainsFunc(u.inputs, func(m wireMessage) bool { return m.input == k })
	})
	sent := j.transfers(tag)
	for _, m := range u.inputs {
		sent.send(m, x.packed(sources[m.input]), u.size)
	}
	j.noteSent()
	sent.then(func(err error) { // before the result comes: it may take the place of the input
		if x.note(err); len(u.results) > 0 {
			x.land(tag, end)
		} else {
			end()
		}
	})
}

// land receives the result of a unit.
func (x *unitMemory) land(tag uint32, end func()) {
	j, u := x.job, x.unit
	landing, targets := x.landing()
	got := j.transfers(tag)
	if got.receive(u.results[0], landing.whole, u.size) {
		j.written.Store(true)
	}
	got.then(func(err error) {
		if x.note(err); x.err == nil {
			x.copy(landing, targets...)
		}
		x.store()
		end()
	})
}

// own receives the inputs of a unit of this process's, joins them and sends the result.
func (x *unitMemory) own(tag uint32, end func()) {
	j, u := x.job, x.unit
	sources := x.sources(func(int) bool { return true })
	got := j.transfers(tag)
	for _, m := range u.inputs {
		got.receive(m, sources[m.input].whole, u.size)
	}
	got.then(func(err error) {
		x.note(err)
		result, targets := x.result(sources)
		if x.err == nil {
			j.written.Store(true)
			x.join(sources, targets)
		}
		sent := j.transfers(tag)
		if len(u.results) > 0 {
			message := x.packed(result)
			for _, m := range u.results {
				sent.send(m, message, u.size)
			}
		}
		j.noteSent()
		x.store()
		sent.then(func(err error) {
			x.note(err)
			end()
		})
	})
}
