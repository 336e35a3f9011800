package collective

// A relay runs the collectives of GPUs one after the other, with copies to the host, sums and copies back of several chunks at once.

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/cpu/kernel/combine"
)

const (
	// ahead is how many chunks are on their way to the host while others are joined.
	ahead = 12
	// abreast is how many are joined at the same time: the last goroutines of one do not keep the others waiting.
	abreast = 3
	// behind is how many may be on their way from the host.
	behind = 12
)

// A relay takes the jobs of one group, or of one pair of ranks, through the host, in their order. It has two goroutines while
// there are any: one starts the copies to the host, the other has chunks joined and starts the copies from it. Neither waits for
// the end of a job, so that the next one is on its way meanwhile.
type relay struct {
	mu    sync.Mutex
	queue []*job
	runs  bool
	idle  chan struct{} // closed when the last run has ended; nil if there was none
}

// add starts a job after those before it.
func (r *relay) add(j *job) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.queue = append(r.queue, j)
	if !r.runs {
		r.runs = true
		before, idle := r.idle, make(chan struct{})
		r.idle = idle
		go r.run(before, idle)
	}
}

// wait waits until there are no jobs.
func (r *relay) wait() {
	r.mu.Lock()
	idle := r.idle
	r.mu.Unlock()
	if idle != nil {
		<-idle
	}
}

// next returns the next job, or nil if this run ends.
func (r *relay) next() *job {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.queue) == 0 {
		r.runs = false
		return nil
	}
	j := r.queue[0]
	r.queue[0] = nil
	r.queue = r.queue[1:]
	return j
}

func (r *relay) run(before <-chan struct{}, idle chan<- struct{}) {
	defer close(idle)
	chunks := make(chan *chunk, ahead)
	go func() {
		for j := r.next(); j != nil; j = r.next() {
			for _, c := range j.chunks {
				c.fetch()
				chunks <- c
			}
		}
		close(chunks)
	}()
	if before != nil {
		<-before
	}
	var sent [behind]delivery
	var last delivery
	room := make(chan struct{}, abreast)
	i := 0
	for c := range chunks {
		sent[i%behind].wait()
		c.prepare()
		before := last
		last = delivery{&c.stored, make(chan struct{})}
		sent[i%behind] = last
		i++
		room <- struct{}{}
		go func(own delivery) {
			share(c.works)
			<-room
			if before.done != nil {
				<-before.done
			}
			c.store()
			close(own.done)
		}(last)
	}
	if last.done != nil {
		<-last.done
	}
}

// A delivery is a chunk on its way from the host.
type delivery struct {
	events *[]core.Event
	done   chan struct{} // closed when the events are known
}

func (d delivery) wait() {
	if d.done == nil {
		return
	}
	<-d.done
	for _, e := range *d.events {
		e.Wait()
	}
}

// An ending is the event of the end of a job.
type ending struct{ *endingState }

type endingState struct {
	joined chan struct{} // closed when events are known
	known  atomic.Bool
	events []core.Event
}

func newEnding() ending { return ending{&endingState{joined: make(chan struct{})}} }

func (e ending) finish(events []core.Event) {
	e.events = events
	e.known.Store(true)
	close(e.joined)
}

// Done implements [core.Event].
func (e ending) Done() bool { return e.known.Load() && len(pending(e.events)) == 0 }

// Wait implements [core.Event].
func (e ending) Wait() {
	for _, o := range e.Parts() {
		o.Wait()
	}
}

// Parts implements [core.Joint].
func (e ending) Parts() []core.Event {
	<-e.joined
	return e.events
}

// WaitFor implements [core.Event].
func (e ending) WaitFor(d time.Duration) bool {
	deadline := time.Now().Add(d)
	if !e.known.Load() {
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-e.joined:
		case <-timer.C:
			return false
		}
	}
	for _, o := range e.events {
		if !o.WaitFor(time.Until(deadline)) {
			return false
		}
	}
	return true
}

// Stream implements [core.Event]: the end of a job is on no one stream.
func (e ending) Stream() core.Stream { return nil }

// pending returns the events that are not done.
func pending(events []core.Event) []core.Event {
	var list []core.Event
	for _, e := range events {
		if !e.Done() {
			list = append(list, e)
		}
	}
	return list
}

// A work is elements for the host to join.
type work struct {
	*step
	dtype            core.DType
	n                int
	sources, targets []unsafe.Pointer
}

// grain is how many bytes of a target one goroutine writes at a time.
const grain = 256 << 10

// share does works on as many goroutines as there are processors.
func share(works []work) {
	var tasks []work
	for _, w := range works {
		size := w.dtype.Size()
		for from := 0; from < w.n; from += grain / size {
			t := w
			t.n = min(grain/size, w.n-from)
			t.sources, t.targets = shifted(w.sources, from*size), shifted(w.targets, from*size)
			tasks = append(tasks, t)
		}
	}
	var next atomic.Int64
	run := func() {
		for i := next.Add(1) - 1; int(i) < len(tasks); i = next.Add(1) - 1 {
			t := &tasks[i]
			combine.Join(t.op, t.dtype, t.n, t.sources, t.targets, t.divisor)
		}
	}
	var wg sync.WaitGroup
	for range min(len(tasks), runtime.GOMAXPROCS(0)) - 1 {
		wg.Go(run)
	}
	run()
	wg.Wait()
}

func shifted(list []unsafe.Pointer, by int) []unsafe.Pointer {
	moved := make([]unsafe.Pointer, len(list))
	for i, p := range list {
		moved[i] = unsafe.Add(p, by)
	}
	return moved
}
