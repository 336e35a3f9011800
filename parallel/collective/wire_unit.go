package collective

// The data of a wireJob: who sends what to whom, and the sums.

import (
	"errors"
	"slices"
	"sync"
	"time"
	"unsafe"

	"github.com/plait-ml/plait/core"
)

const (
	// reduceChunk is the number of bytes of each rank that are summed at a time, while others are on the wire. With many ranks it is smaller,
	// because the inputs of all of them are in memory.
	reduceChunk      = 1 << 20
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

// transfer moves the data. With err this process cannot take part.
func (j *wireJob) transfer(err error) {
	m := j.rendezvous
	if failure := j.failure(); err == nil {
		err = failure
	}
	var places map[source]place
	if j.linked && err == nil {
		places, err = j.places()
	}
	if err != nil {
		j.fail(err)
		m.tellFailed(j.key, err)
		return
	}
	tag := m.world.tags.Add(uint32(j.received)) - uint32(j.received)
	w := m.message(ready)
	w.key(j.key)
	w.readiness(readiness{tag: tag & tagMask, places: places})
	for process, p := range j.peers {
		if p.sends+p.receives > 0 {
			m.world.post(process, w)
		}
	}
	if j.linked {
		j.written.Store(true) // from now on others may write
		if err := j.runSteps(); err != nil {
			j.fail(err)
		}
	} else {
		j.runUnits(tag)
	}
	w = m.message(ended)
	w.key(j.key)
	w.error(j.failure())
	for process, p := range j.peers {
		if p.sends > 0 {
			m.world.post(process, w)
		}
	}
	for _, p := range j.peers {
		if p.receives > 0 {
			if !j.heard(p.ended) {
				<-p.ended
			}
			if p.failure != nil {
				j.fail(p.failure)
			}
		}
	}
}

// runUnits carries out the chunks, several at a time.
func (j *wireJob) runUnits(tag uint32) {
	j.touch()
	defer j.touch()
	var wg sync.WaitGroup
	slots := make(chan struct{}, 2*len(j.peers)+4)
	for _, u := range j.units {
		slots <- struct{}{}
		wg.Go(func() {
			if err := j.runUnit(u, tag); err != nil {
				j.fail(err)
			}
			<-slots
		})
	}
	wg.Wait()
}

// runUnit carries out a chunk. All transfers take place also after an error, because the other processes expect them.
func (j *wireJob) runUnit(u *wireUnit, tag uint32) error {
	size := j.piece(u.ins[0]).dtype.Size() * u.n
	x := &unitMemory{job: j, unit: u, size: size}
	defer x.release()
	if j.rendezvous.world.process != u.owner {
		sources := x.sources(func(k int) bool {
			return slices.ContainsFunc(u.inputs, func(m wireMessage) bool { return m.input == k })
		})
		sent := transfers{job: j, tag: tag}
		for _, m := range u.inputs {
			sent.send(m, sources[m.input], size)
		}
		x.note(sent.wait()) // before the result comes: it may take the place of the input
		if len(u.results) > 0 {
			landing, targets := x.landing()
			got := transfers{job: j, tag: tag}
			if got.receive(u.results[0], landing, size) {
				j.written.Store(true)
			}
			if x.note(got.wait()); x.err == nil {
				joinHere(&step{ins: u.ins[:1]}, core.Uint8, size, []unsafe.Pointer{landing}, targets)
			}
			x.store()
		}
		return x.err
	}
	sources := x.sources(func(int) bool { return true })
	got := transfers{job: j, tag: tag}
	for _, m := range u.inputs {
		got.receive(m, sources[m.input], size)
	}
	x.note(got.wait())
	result, targets := x.result(sources)
	if x.err == nil {
		j.written.Store(true)
		joinHere(u.step, j.piece(u.ins[0]).dtype, u.n, sources, targets)
	}
	sent := transfers{job: j, tag: tag}
	for _, m := range u.results {
		sent.send(m, result, size)
	}
	x.store()
	x.note(sent.wait())
	return x.err
}

// awaitReady waits until a process is ready, or is known not to be. A process that takes longer than the timeout of the operation, because
// its tensors wait for something else, is given up: data may not be left without its counterpart.
func (j *wireJob) awaitReady(process int, p *wirePeer) {
	if j.heard(p.ready) {
		return
	}
	limit := j.timeout()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-p.ready:
	case <-timer.C:
		j.rendezvous.world.lose(process, core.Errorf(core.DistributedError, "", "its tensors for %s were not ready within %v", j.label, limit))
		<-p.ready
	}
}

// transfers are sends and receives that a unit waits for together.
type transfers struct {
	job *wireJob
	tag uint32 // of the first message to this process
	wg  sync.WaitGroup
	mu  sync.Mutex
	err error
	cut int // 1 and the process with which the first transfer failed
}

// peer waits until a process is ready. It returns nil if it takes no part.
func (t *transfers) peer(process int) *wirePeer {
	p := t.job.peers[process]
	t.job.awaitReady(process, p)
	if p.refused != nil {
		t.fail(p.refused)
		return nil
	}
	return p
}

func (t *transfers) send(m wireMessage, data unsafe.Pointer, size int) {
	if p := t.peer(m.peer); p != nil {
		t.wg.Add(1)
		t.job.rendezvous.world.send(m.peer, (p.tag+uint32(m.number))&tagMask, unsafe.Slice((*byte)(data), size), t.done(m.peer))
	}
}

// receive starts to receive data, and reports whether it did.
func (t *transfers) receive(m wireMessage, data unsafe.Pointer, size int) bool {
	if t.peer(m.peer) == nil {
		return false
	}
	t.wg.Add(1)
	t.job.rendezvous.world.transport.Recv(m.peer, (t.tag+uint32(m.number))&tagMask, unsafe.Slice((*byte)(data), size), t.done(m.peer))
	return true
}

// done returns what a transfer with a process calls at its end.
func (t *transfers) done(peer int) func(err error) {
	return func(err error) {
		if err != nil {
			var h interface{ Held() bool }
			if errors.As(err, &h) && h.Held() {
				t.job.hold()
			}
			t.mu.Lock()
			if t.err == nil {
				t.err, t.cut = core.Errorf(core.DistributedError, t.job.label, "a transfer has failed: %w", err), 1+peer
			}
			t.mu.Unlock()
		}
		t.wg.Done()
	}
}

func (t *transfers) fail(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.err == nil {
		t.err = err
	}
}

// lossWait is how long a failed transfer waits for the reason: mostly that a process is lost.
const lossWait = 3 * time.Second

func (t *transfers) wait() error {
	t.wg.Wait()
	if t.cut == 0 {
		return t.err
	}
	m, process := t.job.rendezvous, t.cut-1
	for end := time.Now().Add(lossWait); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if err := m.world.lostProcess(process); err != nil {
			return m.gone(t.job.label, process, err)
		}
	}
	return t.err
}
