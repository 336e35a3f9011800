package collective

// The data of a wireJob: who sends what to whom, and the sums.

import (
	"slices"
	"unsafe"

	"github.com/plait-ml/plait/core"
)

const (
	// reduceChunk is the number of bytes of each rank that are summed at a time, while others are on the wire. With many ranks it is smaller,
	// because the inputs of all of them are in memory.
	reduceChunk      = 256 << 10
	reduceChunkTotal = 16 << 20
	// copyChunk is the number of bytes that are sent at a time where nothing is summed.
	copyChunk = 4 << 20
	// tagMask limits tags to the bits that transports have.
	tagMask = 1<<24 - 1
)

// A wireUnit is a chunk of a step as seen from one process. The inputs of all ranks, or what each process has joined of them, go to the process
// that owns the chunk. It joins them, in rank order, and sends the result to every process that has outputs.
type wireUnit struct {
	*step
	from, n int
	owner   int           // the process
	inputs  []wireMessage // inputs of this process's ranks to the owner; at the owner, those of other ranks
	results []wireMessage // from the owner to this process; at the owner, to others
	outs    []source      // of this process
}

// A wireMessage is data between this process and another one.
type wireMessage struct {
	peer   int
	number int // among the messages of the job to its receiver
	input  int // number of the part in the step, of an input
}

// cut returns the chunks in which this process takes part, and counts its messages. The order and the numbers of messages follow from the
// plan, so they agree in all processes. Chunks of all owners alternate.
func (j *wireJob) cut() (units []*wireUnit, received int) {
	m := j.rendezvous
	me := m.world.process
	counts := map[int]int{}
	number := func(to int) int {
		counts[to]++
		return counts[to] - 1
	}
	for k, more := 0, true; more; k++ {
		more = false
		for i := range j.plan {
			s := &j.plan[i]
			chunk := s.chunk(j.piece(s.ins[0]).dtype.Size())
			if k*chunk >= s.n {
				continue
			}
			more = true
			u := &wireUnit{step: s, from: s.from + k*chunk, n: min(chunk, s.n-k*chunk), owner: j.home(s.owner), outs: j.own(s.outs)}
			if len(s.ins) == 1 {
				u.owner = j.home(s.ins[0].rank)
			}
			for in := range s.count() {
				from := j.home(s.part(in)[0].rank)
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
			for _, out := range s.outs {
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
			if len(u.inputs) > 0 || len(u.results) > 0 || me == u.owner && len(u.outs) > 0 {
				units = append(units, u)
			}
		}
	}
	for _, u := range units {
		sends, receives := u.inputs, u.results
		if me == u.owner {
			sends, receives = u.results, u.inputs
		}
		for _, x := range sends {
			j.peers[x.peer].sends++
		}
		for _, x := range receives {
			j.peers[x.peer].receives++
		}
	}
	return units, counts[me]
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

// runUnit carries out a chunk and calls done. All transfers take place also after an error, because the other processes expect them.
func (j *wireJob) runUnit(u *wireUnit, tag uint32, done func(err error)) {
	size := j.piece(u.ins[0]).dtype.Size() * u.n
	x := &unitMemory{job: j, unit: u, size: size}
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
		sent.send(m, sources[m.input], size)
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

// land receives the result of a chunk.
func (x *unitMemory) land(tag uint32, end func()) {
	j, u := x.job, x.unit
	landing, targets := x.landing()
	got := j.transfers(tag)
	if got.receive(u.results[0], landing, x.size) {
		j.written.Store(true)
	}
	got.then(func(err error) {
		if x.note(err); x.err == nil {
			joinHere(&step{ins: u.ins[:1]}, core.Uint8, x.size, []unsafe.Pointer{landing}, targets)
		}
		x.store()
		end()
	})
}

// own receives the inputs of a chunk of this process's, joins them and sends the result.
func (x *unitMemory) own(tag uint32, end func()) {
	j, u := x.job, x.unit
	sources := x.sources(func(int) bool { return true })
	got := j.transfers(tag)
	for _, m := range u.inputs {
		got.receive(m, sources[m.input], x.size)
	}
	got.then(func(err error) {
		x.note(err)
		result, targets := x.result(sources)
		if x.err == nil {
			j.written.Store(true)
			joinHere(u.step, j.piece(u.ins[0]).dtype, u.n, sources, targets)
		}
		sent := j.transfers(tag)
		for _, m := range u.results {
			sent.send(m, result, x.size)
		}
		j.noteSent()
		x.store()
		sent.then(func(err error) {
			x.note(err)
			end()
		})
	})
}
