package collective

// How a wireJob moves its data. The transfers of tensors that the host can address go on in what the transport calls when messages have come,
// so that a rank that waits carries them out itself, and no goroutine has to be woken. Others have goroutines, which wait for devices.

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/plait-ml/plait/core"
)

// A stage is how far a driven job has come.
type stage int

const (
	notBegun stage = iota
	told           // the others know that this process is ready
	underWay       // they have said so too, or refused
	hasMoved       // all data is there
	hasTold        // and the others know whether it is valid
	over
)

// driving is the state of a driven job.
type driving struct {
	stage  stage
	tag    uint32      // of the first message to this process
	late   *time.Timer // for the others to be ready
	next   int         // the next unit
	active int         // units under way
	sent   int         // units whose messages from here have been given to the transport
}

// transfer moves the data. With err this process cannot take part.
func (j *wireJob) transfer(err error) {
	tag, ok := j.tellReady(err)
	if !ok {
		return
	}
	if j.linked {
		j.written.Store(true) // from now on others may write
		if err := j.runSteps(); err != nil {
			j.fail(err)
		}
	} else {
		j.runUnits(tag)
	}
	j.tellEnded()
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

// tellReady tells the others that this process is ready, and returns the tag of the first message to it, or false if it cannot take part.
func (j *wireJob) tellReady(err error) (tag uint32, ok bool) {
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
		return 0, false
	}
	tag = m.world.tags.Add(uint32(j.received)) - uint32(j.received)
	w := m.message(ready)
	w.key(j.key)
	w.readiness(readiness{tag: tag & tagMask, places: places})
	for process, p := range j.peers {
		if p.sends+p.receives > 0 {
			m.world.post(process, w)
		}
	}
	return tag, true
}

// tellEnded tells those that this process has sent to whether the data was valid, unless they have been told: see [wireJob.noteSent].
func (j *wireJob) tellEnded() {
	m := j.rendezvous
	j.mu.Lock()
	again, err := j.toldEnded, j.err
	j.toldEnded = true
	j.mu.Unlock()
	if again {
		return
	}
	w := m.message(ended)
	w.key(j.key)
	w.error(err)
	for process, p := range j.peers {
		if p.sends > 0 {
			m.world.post(process, w)
		}
	}
}

// begin begins a driven job, whose tensors are ready. With err this process cannot take part.
func (j *wireJob) begin(err error) {
	tag, ok := j.tellReady(err)
	if !ok {
		j.finish()
		return
	}
	j.mu.Lock()
	j.stage, j.tag = told, tag
	limit := j.timeout()
	j.late = time.AfterFunc(limit, func() { j.loseLate(limit) })
	j.mu.Unlock()
	j.carryOn()
}

// loseLate gives up processes that are not ready within a limit: data may not be left without its counterpart.
func (j *wireJob) loseLate(limit time.Duration) {
	var late []int
	j.mu.Lock()
	for process, p := range j.peers {
		if !p.isReady && p.sends+p.receives > 0 {
			late = append(late, process)
		}
	}
	j.mu.Unlock()
	for _, process := range late {
		j.rendezvous.world.lose(process, j.notReady(limit))
	}
}

// carryOnLater has a driven job carried on when the rendezvous, which is locked, is unlocked.
func (j *wireJob) carryOnLater() {
	if j.driven {
		j.rendezvous.later = append(j.rendezvous.later, j.carryOn)
	}
}

// carryOn takes the next step of a driven job, if what it waits for has come.
func (j *wireJob) carryOn() {
	j.mu.Lock()
	switch {
	case j.stage == told && j.have(func(p *wirePeer) bool { return p.isReady || p.sends+p.receives == 0 }):
		j.stage = underWay
		j.late.Stop()
		j.flowing.Store(true)
		j.mu.Unlock()
		j.touch()
		j.startUnits()
	case j.stage == hasTold && j.have(func(p *wirePeer) bool { return p.hasEnded || p.receives == 0 }):
		j.stage = over
		j.mu.Unlock()
		for _, p := range j.peers {
			if p.receives > 0 && p.failure != nil {
				j.fail(p.failure)
			}
		}
		j.finish()
	default:
		j.mu.Unlock()
	}
}

// have reports whether something holds for all other processes.
func (j *wireJob) have(holds func(p *wirePeer) bool) bool {
	for _, p := range j.peers {
		if !holds(p) {
			return false
		}
	}
	return true
}

// unitsAtOnce is how many units are under way at a time.
func (j *wireJob) unitsAtOnce() int { return 2*len(j.peers) + 4 }

// startUnits starts the next units of a driven job, and ends their part when all are over.
func (j *wireJob) startUnits() {
	for {
		j.mu.Lock()
		if j.next == len(j.units) || j.active == j.unitsAtOnce() {
			over := j.active == 0 && j.stage == underWay
			if over {
				j.stage = hasMoved
			}
			j.mu.Unlock()
			if over {
				j.touch()
				j.tellEnded()
				j.mu.Lock()
				j.stage = hasTold
				j.mu.Unlock()
				j.carryOn()
			}
			return
		}
		u := j.units[j.next]
		j.next++
		j.active++
		j.mu.Unlock()
		j.runUnit(u, j.tag, func(err error) {
			if err != nil {
				j.fail(err)
			}
			j.mu.Lock()
			j.active--
			j.mu.Unlock()
			j.startUnits()
		})
	}
}

// noteSent notes that a unit's messages from here have been given to the transport. With the last of a driven job it is known that they were
// valid. A single other process hears so at once, which saves it a wait: what may still go wrong here, a transfer that the transport loses,
// concerns this process alone. Among several, one that loses another must let all know.
func (j *wireJob) noteSent() {
	j.mu.Lock()
	j.sent++
	valid := j.driven && len(j.peers) == 1 && j.sent == len(j.units) && j.err == nil
	j.mu.Unlock()
	if valid {
		j.tellEnded()
	}
}

// runUnits carries out the units of a job that is not driven, several at a time.
func (j *wireJob) runUnits(tag uint32) {
	j.touch()
	defer j.touch()
	var wg sync.WaitGroup
	slots := make(chan struct{}, j.unitsAtOnce())
	for _, u := range j.units {
		slots <- struct{}{}
		wg.Go(func() {
			j.runUnit(u, tag, func(err error) {
				if err != nil {
					j.fail(err)
				}
			})
			<-slots
		})
	}
	wg.Wait()
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
		j.rendezvous.world.lose(process, j.notReady(limit))
		<-p.ready
	}
}

// notReady returns why a process that is not ready in time is lost.
func (j *wireJob) notReady(limit time.Duration) error {
	return core.Errorf(core.DistributedError, "", "its tensors for %s were not ready within %v", j.label, limit)
}

// transfers are sends and receives that a unit waits for together.
type transfers struct {
	job  *wireJob
	tag  uint32       // of the first message to this process
	left atomic.Int32 // under way, and one until then is called
	over func()       // is called when none is left
	mu   sync.Mutex
	err  error
	cut  int // 1 and the process with which the first transfer failed
}

// transfers returns an empty list.
func (j *wireJob) transfers(tag uint32) *transfers {
	t := &transfers{job: j, tag: tag}
	t.left.Store(1)
	return t
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
		t.left.Add(1)
		t.job.rendezvous.world.send(m.peer, (p.tag+uint32(m.number))&tagMask, unsafe.Slice((*byte)(data), size), t.done(m.peer))
	}
}

// receive starts to receive data, and reports whether it did.
func (t *transfers) receive(m wireMessage, data unsafe.Pointer, size int) bool {
	if t.peer(m.peer) == nil {
		return false
	}
	t.left.Add(1)
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
		t.leave()
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

// reason returns the error of the transfers, which have ended.
func (t *transfers) reason() error {
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

// leave ends one of the transfers.
func (t *transfers) leave() {
	if t.left.Add(-1) == 0 {
		t.over()
	}
}

// then calls f with the error of all transfers when they have ended. That of a driven job is called by who notices the end, that of others
// before then returns.
func (t *transfers) then(f func(err error)) {
	if !t.job.driven {
		ended := make(chan struct{})
		t.over = func() { close(ended) }
		t.leave()
		<-ended
		f(t.reason())
		return
	}
	t.over = func() {
		if t.cut == 0 {
			f(t.err)
		} else {
			go func() { f(t.reason()) }()
		}
	}
	t.leave()
}
