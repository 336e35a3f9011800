package collective

// Collectives, and sends, between processes.

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/plait-ml/plait/core"
)

// A wireJob is this process's part in a collective of several processes. Each process that has launched it waits for its own tensors and then
// tells the others either that it is ready, which binds it to send and receive all that the plan says, or that it has failed. So data moves
// only between two processes that both expect it, and every transfer ends: also after an error, when the data no longer matters.
// At the end each process tells those that it has sent to whether the data was valid.
type wireJob struct {
	core.Blocker
	rendezvous *rendezvous
	key        roundKey
	label      string // for errors
	name       string
	calls      []*rankCall
	plan       []step
	small      bool         // see [smallLimit]
	linked     bool         // devices use each other's memory: see [linked]
	signaled   bool         // and wait for each other: see [exchange]
	before     []*wireJob   // jobs that must end first, so that not too many run at a time
	waits      []core.Event // that this process's calls wait for; see [wireJob.unmet]
	units      []*wireUnit
	received   int         // messages to this process
	steps      []*step     // of a linked job: those that this process runs
	flowing    atomic.Bool // of a driven job: all processes send and receive
	driven     bool        // the host can address all tensors: see [wireJob.begin]
	end        *deferredEvent
	held       atomic.Bool // the transport may still use its memory
	written    atomic.Bool // outputs have changed, or may have

	mu        sync.Mutex
	err       error
	toldEnded bool              // or about to tell it: see [wireJob.tellEnded]
	peers     map[int]*wirePeer // the other processes that take part
	complete  bool              // of a small job: all inputs have come
	arrived   chan struct{}     // closed then, or if the job fails
	last      []core.Event      // copies to devices
	driving                     // of a driven job
}

// needs reports whether the job lacks a word or data of another process. That of a small job comes with its messages. A process that has only
// received may leave once it has been told that its data is valid.
func (j *wireJob) needs(process int) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	switch p := j.peers[process]; {
	case p == nil:
		return false
	case j.signaled: // partners end together
		return p.sends+p.receives > 0 && !p.hasEnded
	case !j.small:
		return p.receives > 0 && !p.hasEnded || p.sends > 0 && !j.toldEnded
	}
	return slices.ContainsFunc(j.lacking(), func(c *rankCall) bool { return c.process == process })
}

// A wirePeer is another process in a job.
type wirePeer struct {
	ready, ended      chan struct{} // closed once known
	isReady, hasEnded bool
	readiness
	refused         error // it is not ready, and will not be
	failure         error // its data is not valid
	sends, receives int   // messages to it, and from it; of a linked job, pieces of it that this process uses, and the reverse
}

// A readiness is what a process says when it is ready.
type readiness struct {
	tag    uint32           // of the first message to the process
	places map[source]place // of a linked job: where its tensors are
	words  place            // of a signaled job: the words that the process that hears it sets
	number uint32           // to this number
}

func (w *writer) readiness(s readiness) {
	w.uint(uint64(s.tag))
	w.places(s.places)
	w.bytes(s.words.block)
	w.uint(uint64(s.words.at))
	w.uint(uint64(s.number))
}

func (r *reader) readiness() readiness {
	return readiness{uint32(r.uint()), r.places(), place{r.bytes(), int(r.uint())}, uint32(r.uint())}
}

// jobsAtOnce is how many transfers of one channel run at a time. They begin in the order of the calls, which is the same in all processes.
const jobsAtOnce = 3

// onlyCall is the number of a job's only call, for its [core.Blocker].
const onlyCall = 1

// newWireJob returns a job of calls. The rendezvous is locked.
func newWireJob(m *rendezvous, key roundKey, label, name string, calls []*rankCall, plan []step, small bool) *wireJob {
	j := &wireJob{rendezvous: m, key: key, label: label, name: name, calls: calls, plan: plan, small: small}
	for _, p := range j.ownCalls() {
		j.waits = append(j.waits, foreign(slices.Concat(p.reads, p.writes), calls)...)
	}
	if small {
		return j
	}
	j.open()
	if linked(calls) {
		j.linked, j.signaled = true, signaled(calls)
		j.assign()
	} else {
		j.units, j.received = j.cut()
		j.driven = !slices.ContainsFunc(calls, func(p *rankCall) bool { return p.here() && p.stagers.fromHost != nil })
	}
	return j
}

// open makes what a job needs that does not end at its launch.
func (j *wireJob) open() {
	m := j.rendezvous
	j.end, j.arrived, j.peers = newDeferredEvent(), make(chan struct{}), map[int]*wirePeer{}
	j.end.job, j.end.world, j.end.idle = j, m.world, spinOf(len(m.ranks))
	for _, p := range j.calls {
		if !p.here() && j.peers[p.process] == nil {
			j.peers[p.process] = &wirePeer{ready: make(chan struct{}), ended: make(chan struct{})}
		}
	}
}

// follow makes the job wait for earlier ones of its channel.
func (j *wireJob) follow() {
	m := j.rendezvous
	list := slices.DeleteFunc(m.newest[j.key.channel], func(o *wireJob) bool { return o.end.known.Load() })
	most := jobsAtOnce
	if j.signaled { // devices wait in the order in which the jobs are launched
		most = 1
	}
	if n := len(list); n >= most {
		j.before = slices.Clone(list[:n-most+1])
	}
	m.newest[j.key.channel] = append(list, j)
}

// clash returns an error if the memory of this process's calls overlaps so that one step would change what another one reads or writes.
func (j *wireJob) clash() error {
	own := j.ownCalls()
	if len(own) < 2 {
		return nil
	}
	var waits []core.Event
	for _, p := range own {
		waits = append(waits, p.waits...)
	}
	waits = pending(waits)
	if countShared(own) < 2 && len(foreign(waits, own)) == len(waits) {
		return nil
	}
	return clash(j.plan, j.calls)
}

// launch starts the job and settles the works of its calls. The rendezvous is locked. early holds the processes that are ready already.
func (j *wireJob) launch(early map[int]readiness) {
	m := j.rendezvous
	if j.small && len(j.lacking()) == 0 && len(j.unmet()) == 0 {
		j.sendSmall(nil)
		j.joinSmall()
		endNow(j.calls)
		for _, p := range j.calls {
			p.work.settle(nil, nil)
		}
		return
	}
	if j.small {
		j.open()
	}
	m.jobs[j.key] = j
	m.world.add(j)
	for p, state := range early {
		j.peerReady(p, state)
	}
	for p := range j.peers {
		if err := m.world.lostProcess(p); err != nil {
			j.lose(p, err)
		}
	}
	for _, p := range j.calls {
		p.noteEnd(j.end)
		p.work.settle([]core.Event{j.end}, nil)
	}
	if j.driven && len(j.before) == 0 && len(j.unmet()) == 0 {
		m.later = append(m.later, func() { j.begin(j.await()) })
		return
	}
	go j.run()
}

// unmet returns the unfinished events that this process's calls wait for.
func (j *wireJob) unmet() []core.Event { return pending(j.waits) }

func (j *wireJob) run() {
	if j.signaled {
		j.exchange()
		j.finish()
		return
	}
	err := j.await()
	if j.driven {
		j.begin(err)
		return
	}
	if j.small {
		j.mu.Lock()
		j.check()
		j.mu.Unlock()
		j.sendSmall(err)
		if err != nil {
			j.fail(err)
		}
		j.awaitInputs()
		j.joinSmall()
	} else {
		j.transfer(err)
	}
	j.finish()
}

// awaitInputs waits until all inputs of a small job have come, or it has failed.
func (j *wireJob) awaitInputs() {
	limit := j.timeout()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-j.arrived:
	case <-timer.C:
		j.fail(j.rendezvous.world.fault(core.Errorf(core.DistributedError, j.label, "the tensors of other ranks were not ready within %v", limit)))
	}
}

// timeout returns how long this process's ranks wait for others.
func (j *wireJob) timeout() (d time.Duration) {
	for _, p := range j.ownCalls() {
		d = max(d, p.op.Timeout)
	}
	return d
}

// await waits for this process's tensors, and for the jobs that must end first.
func (j *wireJob) await() error {
	if err := j.awaitTurn(); err != nil {
		return err
	}
	for _, e := range j.unmet() {
		if err := j.BlockOn(e, onlyCall, e.WaitFor); err != nil {
			return err
		}
	}
	if j.small {
		return nil // joinSmall finds the failures
	}
	return j.inputFailure()
}

// awaitTurn waits for the jobs that must end first.
func (j *wireJob) awaitTurn() error {
	for _, o := range j.before {
		if err := j.BlockOn(o.end, onlyCall, o.end.parked); err != nil {
			return err
		}
	}
	j.before = nil
	return nil
}

// inputFailure returns the failure of an input of this process, which is that of the job.
func (j *wireJob) inputFailure() error {
	for i := range j.plan {
		for _, in := range j.own(j.plan[i].ins) {
			if err := j.borrowed(in).Err(); err != nil {
				j.fail(err) // as it is, so that it counts as reported
				return inputError(j.calls[in.rank], err)
			}
		}
	}
	return nil
}

// blockedOn implements [deferring].
func (j *wireJob) blockedOn() core.Event { return j.BlockedOn(onlyCall) }

// cancel implements [deferring].
func (j *wireJob) cancel(err error) { j.Cancel(onlyCall, err) }

// finish ends the job.
func (j *wireJob) finish() {
	j.failOutputs()
	m := j.rendezvous
	m.world.drop(j)
	core.Lock(&m.mu)
	delete(m.jobs, j.key)
	if left := slices.DeleteFunc(m.newest[j.key.channel], func(o *wireJob) bool { return o == j }); len(left) > 0 {
		m.newest[j.key.channel] = left
	} else {
		delete(m.newest, j.key.channel)
	}
	m.retire()
	m.mu.Unlock()
	if len(pending(j.last)) == 0 {
		endNow(j.calls)
	}
	if !j.end.known.Load() {
		j.end.resolve(j.last...)
	}
}

// failOutputs passes an error of the job to its works and outputs here.
func (j *wireJob) failOutputs() {
	err := j.failure()
	if err == nil {
		return
	}
	onCancel(j.ownCalls())(err)
	for _, p := range j.calls {
		for _, out := range p.outs {
			switch {
			case j.small: // joinSmall has done so
			case j.written.Load():
				out.Fail(err)
			default:
				out.FailUnchanged(err)
			}
		}
	}
}

// ownCalls returns the calls of this process.
func (j *wireJob) ownCalls() (calls []*rankCall) {
	for _, p := range j.calls {
		if p.here() {
			calls = append(calls, p)
		}
	}
	return calls
}

// fail records the first error of the job, which becomes that of all its outputs here.
func (j *wireJob) fail(err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.err == nil {
		j.err = err
	}
	if !j.complete && j.small {
		j.complete = true
		close(j.arrived)
	}
}

func (j *wireJob) failure() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.err
}

// peerReady records that a process is ready.
func (j *wireJob) peerReady(process int, state readiness) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if p := j.peers[process]; p != nil && !p.isReady {
		p.isReady, p.readiness = true, state
		close(p.ready)
		j.carryOnLater()
	}
}

// peerEnded records whether the data that a process has sent is valid.
func (j *wireJob) peerEnded(process int, err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if p := j.peers[process]; p != nil && !p.hasEnded {
		p.hasEnded, p.failure = true, err
		close(p.ended)
		j.carryOnLater()
	}
}

// refused records that a process takes no part, or no further part.
func (j *wireJob) refused(process int, err error) {
	j.mu.Lock()
	p := j.peers[process]
	if p == nil || !j.small && p.sends+p.receives == 0 {
		j.mu.Unlock()
		return
	}
	if p != nil {
		if !p.isReady {
			p.isReady, p.refused = true, err
			close(p.ready)
		}
		if !p.hasEnded {
			p.hasEnded, p.failure = true, err
			close(p.ended)
		}
	}
	j.mu.Unlock()
	j.fail(err)
	j.carryOnLater()
}

// lose fails the job if it needs a lost process, or the process has said that its data is not valid.
func (j *wireJob) lose(process int, err error) {
	j.mu.Lock()
	p := j.peers[process]
	failed := p != nil && !j.small && p.failure != nil
	j.mu.Unlock()
	if failed || j.needs(process) {
		j.refused(process, j.rendezvous.gone(j.label, process, err))
	}
}

func (j *wireJob) here(s source) bool { return j.calls[s.rank].here() }

// own returns the sources of this process.
func (j *wireJob) own(list []source) (own []source) {
	for _, s := range list {
		if j.here(s) {
			own = append(own, s)
		}
	}
	return own
}

func (j *wireJob) piece(s source) *Piece { return j.calls[s.rank].op.piece(s) }

func (j *wireJob) borrowed(s source) *core.Borrowed {
	if s.out {
		return j.calls[s.rank].outs[s.piece]
	}
	return j.calls[s.rank].ins[s.piece]
}

// region returns the memory of elements from to from+n of a piece.
func (j *wireJob) region(s source, from, n int) core.Region {
	return j.borrowed(s).Region(j.piece(s).From+from, n)
}

// closeWait is how long a rank that leaves a group, or a process that leaves the world, waits for operations in which others need it.
const closeWait = 10 * time.Second

// closePause is how long a process that leaves the world waits at a time for the last steps of its jobs.
const closePause = 50 * time.Microsecond

// waitJobs waits for the transfers of rank i, and for other processes to arrive where the rank has arrived: they need its data.
func (m *rendezvous) waitJobs(i int) {
	if len(m.peers) == 0 {
		return
	}
	var works []*Work
	m.mu.Lock()
	for _, r := range m.rounds {
		if p := r.calls[i]; p != nil && !r.over && !r.lacksOwn() {
			works = append(works, p.work)
		}
	}
	for _, j := range m.jobs {
		for _, p := range j.calls {
			if p.here() && p.rank == i {
				works = append(works, p.work)
			}
		}
	}
	m.mu.Unlock()
	end := time.Now().Add(closeWait)
	for _, w := range works {
		w.Event().WaitFor(time.Until(end))
	}
}
