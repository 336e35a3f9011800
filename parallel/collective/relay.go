package collective

// A relay runs the collectives of GPUs through the host. Copies to the host, sums and copies back of several chunks overlap.

import (
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/cpu/kernel/combine"
)

const (
	// maxFetching is the number of chunks that may be in flight to the host while others are joined.
	maxFetching = 12
	// maxJoining is the number of chunks joined at the same time, so that the last goroutines of one do not delay the others.
	maxJoining = 3
	// maxStoring is the number of chunks that may be in flight from the host.
	maxStoring = 12
)

// A relay runs the jobs of one group, or of one pair of ranks, in order. While there are jobs it has two goroutines: one starts copies to
// the host, the other joins chunks and starts the copies back. Neither waits for the end of a job, so jobs overlap.
type relay struct {
	core.Blocker // of the goroutine that joins
	jobs         atomic.Uint64

	mu    sync.Mutex
	queue []*job
	runs  bool
	idle  chan struct{} // closed when the current run ends; nil before the first
}

// add appends a job to the queue.
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

// wait waits until the queue is empty and its jobs have been launched.
func (r *relay) wait() {
	r.mu.Lock()
	idle := r.idle
	r.mu.Unlock()
	if idle != nil {
		<-idle
	}
}

// next removes the next job from the queue. It returns nil if there is none, which ends this run.
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
	chunks := make(chan *chunk, maxFetching)
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
	var sent [maxStoring]delivery
	var last delivery
	slots := make(chan struct{}, maxJoining)
	i := 0
	for c := range chunks {
		sent[i%maxStoring].wait(r, c.job.number)
		c.prepare()
		before := last
		last = delivery{&c.stored, make(chan struct{})}
		sent[i%maxStoring] = last
		i++
		slots <- struct{}{}
		go func(own delivery) {
			joinAll(c.tasks)
			<-slots
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

// A delivery is a chunk in flight from the host.
type delivery struct {
	events *[]core.Event
	done   chan struct{} // closed when the events are known
}

// wait waits until the chunk is stored, before the relay goes on with a job.
func (d delivery) wait(r *relay, job uint64) {
	if d.done == nil {
		return
	}
	<-d.done
	for _, e := range *d.events {
		if r.BlockOn(e, job, e.WaitFor) != nil {
			return
		}
	}
}

// A joinTask is a range of elements for the host to join.
type joinTask struct {
	*step
	dtype            core.DType
	n                int
	sources, targets []unsafe.Pointer
}

// changed returns the targets without those that a copy finds in their place already.
func (t *joinTask) changed() []unsafe.Pointer {
	if len(t.sources) > 1 {
		return t.targets
	}
	return slices.DeleteFunc(slices.Clone(t.targets), func(p unsafe.Pointer) bool { return p == t.sources[0] })
}

// grain is the number of bytes of a target that one goroutine writes at a time.
const grain = 256 << 10

// joinAll joins on up to GOMAXPROCS goroutines, one for each grain.
func joinAll(list []joinTask) {
	var tasks []joinTask
	total := 0
	for _, w := range list {
		if w.targets = w.changed(); len(w.targets) == 0 {
			continue
		}
		size := w.dtype.Size()
		total += w.n * size
		if w.n*size <= grain {
			tasks = append(tasks, w)
			continue
		}
		for from := 0; from < w.n; from += grain / size {
			t := w
			t.n = min(grain/size, w.n-from)
			t.sources, t.targets = shifted(w.sources, from*size), shifted(w.targets, from*size)
			tasks = append(tasks, t)
		}
	}
	if len(tasks) == 1 {
		tasks[0].run()
		return
	}
	var next atomic.Int64
	run := func() {
		for i := next.Add(1) - 1; int(i) < len(tasks); i = next.Add(1) - 1 {
			tasks[i].run()
		}
	}
	var wg sync.WaitGroup
	for range min(len(tasks), (total+grain-1)/grain, runtime.GOMAXPROCS(0)) - 1 {
		wg.Go(run)
	}
	run()
	wg.Wait()
}

func (t *joinTask) run() { combine.Join(t.op, t.dtype, t.n, t.sources, t.targets, t.divisor) }

func shifted(list []unsafe.Pointer, by int) []unsafe.Pointer {
	moved := make([]unsafe.Pointer, len(list))
	for i, p := range list {
		moved[i] = unsafe.Add(p, by)
	}
	return moved
}
