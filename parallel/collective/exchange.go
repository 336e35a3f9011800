package collective

// Linked jobs whose devices wait for each other, without their hosts: the host of each process gives its device the whole job at once.
//
//  1. The hosts tell each other where their tensors are. They need not have been computed yet.
//  2. Each device waits for its own tensors, tells the others that they are ready, and waits for the others' word.
//  3. It runs its steps and tells those whose memory they use that they have run.
//  4. It waits for the steps of others. What was launched behind the job then runs.
//  5. The hosts tell each other whether all went well. Until then no host counts the job as done.

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/plait-ml/plait/core"
)

// signaled reports whether the devices of a linked job wait for each other. It is the same in all processes.
func signaled(calls []*rankCall) bool {
	processes := map[int]bool{}
	for _, p := range calls {
		if p.site == nil || !p.site.signals || p.op.Kind == KindSend || p.op.Kind == KindRecv || processes[p.process] {
			return false
		}
		processes[p.process] = true
	}
	return true
}

// An exchange is this process's part in a job whose devices wait for each other.
type exchange struct {
	*wireJob
	call     *rankCall
	device   *ownDevice
	partners []int        // processes that use memory of this one, or whose memory it uses
	slots    map[int]slot // by partner
	lane     *lane
	ran      core.Event  // the steps of this process have run; nil before the launch
	all      core.Event  // so have those of others
	known    atomic.Bool // whether the outputs are valid
	since    time.Time   // this process's tensors are ready; it began before that
}

// exchange carries out the job.
func (j *wireJob) exchange() {
	x := &exchange{wireJob: j, call: j.ownCalls()[0], slots: map[int]slot{}, since: time.Now()}
	x.device = j.rendezvous.world.sharing.device(x.call.stream.Device())
	for process, p := range j.peers {
		if p.sends+p.receives > 0 {
			x.partners = append(x.partners, process)
		}
	}
	slices.Sort(x.partners)
	defer x.freeSlots()
	err := x.tellReady()
	if err != nil {
		j.fail(err)
		j.rendezvous.tellFailed(j.key, err)
		return
	}
	if err = j.awaitTurn(); err == nil {
		err = x.awaitPartners()
	}
	if err == nil {
		defer x.device.leaveLane(x.laneKey())
		err = x.launch()
	}
	if err != nil {
		j.fail(err)
	}
	x.await(x.ran)
	x.tellEnded()
	j.failOutputs()
	x.known.Store(true)
	x.await(x.all)
}

func (x *exchange) laneKey() laneKey { return laneKey{x.rendezvous.id, x.key.channel} }

func (x *exchange) freeSlots() {
	for _, s := range x.slots {
		x.device.freeSlot(s)
	}
}

// tellReady tells the partners where this process's tensors are, and which words they have to set.
func (x *exchange) tellReady() error {
	if err := x.inputFailure(); err != nil {
		return err
	}
	if err := x.failure(); err != nil {
		return err
	}
	places, err := x.places()
	if err != nil {
		return err
	}
	for _, process := range x.partners {
		s, err := x.device.takeSlot()
		if err != nil {
			return err
		}
		x.slots[process] = s
	}
	x.written.Store(true) // from now on others may write
	for process, s := range x.slots {
		w := x.rendezvous.message(ready)
		w.key(x.key)
		w.readiness(readiness{places: places, words: s.place, number: s.number})
		x.rendezvous.world.post(process, w)
	}
	return nil
}

// awaitPartners waits until the hosts of all partners have begun.
func (x *exchange) awaitPartners() error {
	for _, process := range x.partners {
		p := x.peers[process]
		if x.awaitReady(process, p); p.refused != nil {
			return p.refused
		}
	}
	return nil
}

// launch gives the job to the device. After an error, the partners hear of it and release their devices.
func (x *exchange) launch() error {
	x.lane = x.device.takeLane(x.laneKey(), x.call.streams.rank)
	later, err := x.launchSteps()
	x.ran = x.lane.Record()
	c := x.begin()
	for i := range x.call.outs {
		if piece := x.call.op.Outs[i]; piece.N > 0 {
			c.OutBorrowed(x.call.outs[i], piece.From, piece.N)
		}
	}
	x.lane.LaunchSignals(c, core.Signals{Await: later, Valid: x})
	x.all = x.lane.Record()
	submit([]core.Event{x.all})
	x.end.resolve(x.all)
	return err
}

// launchSteps launches this process's steps, and returns what the device has to wait for after them.
func (x *exchange) launchSteps() (later []core.Signal, err error) {
	var begin, finish core.Signals
	for _, process := range x.partners {
		p, own := x.peers[process], x.slots[process]
		toReady, toDone, err := x.remoteWords(p)
		if err != nil {
			return nil, err
		}
		begin.Set = append(begin.Set, toReady)
		if p.sends > 0 {
			begin.Await = append(begin.Await, own.ready())
			finish.Set = append(finish.Set, toDone)
		}
		if p.receives > 0 {
			later = append(later, own.done())
		}
	}
	c := x.begin()
	c.AddWaits(x.unmet()...)
	x.lane.LaunchSignals(c, begin)
	for _, steps := range x.batches() {
		if err := x.launchBatch(steps, x.lane); err != nil {
			return nil, err
		}
	}
	x.lane.LaunchSignals(x.begin(), finish)
	return later, nil
}

// begin returns a call for signals.
func (x *exchange) begin() *core.Call {
	c := x.lane.Begin(-1, x.name)
	c.OnCancel = func(err error) {
		x.fail(err)
		onCancel(x.ownCalls())(err)
	}
	return c
}

// remoteWords returns the words of a partner that this process sets.
func (x *exchange) remoteWords(p *wirePeer) (ready, done core.Signal, err error) {
	const wordSize = 4
	m, err := x.rendezvous.world.sharing.open(x.device, p.words.block)
	if err != nil {
		return ready, done, err
	}
	at := p.words.at
	if at%wordSize != 0 || at+wordsPerSlot*wordSize > m.Size {
		return ready, done, core.Errorf(core.DistributedError, x.label, "a process has words outside its memory")
	}
	remote := slot{memory: m, word: at / wordSize, number: p.number}
	return remote.ready(), remote.done(), nil
}

// raisePause is how long a job waits before it looks whether a partner has ended without setting words.
const raisePause = 10 * time.Millisecond

// await waits for an event of the lane. A partner that has ended sets no more words, so the host sets them in its place: mostly they are set
// already. A partner that is not ready in time is lost.
func (x *exchange) await(e core.Event) {
	if e == nil {
		return
	}
	limit := x.timeout()
	for !e.WaitFor(raisePause) {
		var words []core.Signal
		x.mu.Lock()
		for process, s := range x.slots {
			if x.peers[process].hasEnded {
				words = append(words, s.ready(), s.done())
			}
		}
		x.mu.Unlock()
		if len(words) > 0 {
			x.device.RaiseSignals(words...)
		}
		if len(x.unmet()) > 0 {
			x.since = time.Now()
		} else if time.Since(x.since) > limit {
			for _, process := range x.partners {
				x.giveUpUnlessEnded(process, limit)
			}
		}
	}
}

// lastWords is how long a process waits at least for what partners say at the end: they may have become ready at the last moment.
const lastWords = time.Second

// giveUpUnlessEnded loses a partner that has not ended.
func (x *exchange) giveUpUnlessEnded(process int, limit time.Duration) {
	x.mu.Lock()
	ended := x.peers[process].hasEnded
	x.mu.Unlock()
	if ended {
		return
	}
	x.rendezvous.world.lose(process, core.Errorf(core.DistributedError, "", "its tensors for %s were not ready within %v", x.label, limit))
}

// tellEnded tells the partners whether all has gone well here, and waits until they have done so.
func (x *exchange) tellEnded() {
	err := x.inputFailure()
	if err == nil {
		err = x.device.Lost()
	}
	if err == nil {
		err = x.outputFailure()
	}
	if err != nil {
		x.fail(err)
	} else {
		err = x.failure()
	}
	w := x.rendezvous.message(ended)
	w.key(x.key)
	w.error(err)
	for _, process := range x.partners {
		x.rendezvous.world.post(process, w)
	}
	limit := x.timeout()
	over := time.NewTimer(max(limit-time.Since(x.since), lastWords))
	defer over.Stop()
	late := false
	for _, process := range x.partners {
		p := x.peers[process]
		if !late {
			select {
			case <-p.ended:
			case <-over.C:
				late = true
			}
		}
		if late {
			x.giveUpUnlessEnded(process, limit)
			<-p.ended
		}
		if p.failure != nil {
			x.fail(p.failure)
		}
	}
}

// Known implements [core.Validity].
func (x *exchange) Known() bool { return x.known.Load() }

// Err implements [core.Validity].
func (x *exchange) Err() error { return x.failure() }
