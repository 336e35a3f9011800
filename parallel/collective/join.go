package collective

// Worlds of several processes: how they form, and how a process or a rank leaves them.

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/plait-ml/plait/core"
)

// A World is this process's part of a world of several processes.
type World struct {
	world  *world
	groups []*Group
}

// An earlyMessage came before a rank of this process had made its group.
type earlyMessage struct {
	from    int
	message []byte
}

// JoinWorld makes a world with the other processes of a transport, which all call it. Each brings a number of ranks, which are its threads.
// The ranks are numbered process by process. It waits for the other processes for at most o.JoinTimeout. The world owns the transport.
func JoinWorld(t Transport, ranks int, o Options) (*World, error) {
	err := o.complete()
	if err == nil && ranks < 1 {
		err = core.Errorf(core.ValueError, "world", "got %d ranks, want at least one in each process", ranks)
	}
	w := newWorld(0, o)
	w.transport, w.process = t, t.Process()
	w.sharing = newSharing(w.process, w.tellAll)
	join := &joining{world: w, hellos: make([]*helloMessage, t.Processes()), lost: map[int]error{}, changed: make(chan struct{}, 1)}
	t.Lost(join.lose)
	t.Listen(join.listen)
	mine := helloMessage{ranks: ranks, digest: digest(o), world: w.flight.number.Load()}
	if err != nil {
		mine.err = err.Error()
	}
	join.hellos[w.process] = &mine
	for p := range join.hellos {
		if p != w.process {
			t.Post(p, mine.encode())
		}
	}
	if err == nil {
		err = join.wait(cmp.Or(o.JoinTimeout, o.Timeout))
	}
	if err != nil {
		t.Close()
		return nil, err
	}
	for p, h := range join.hellos {
		w.homes = append(w.homes, slices.Repeat([]int{p}, h.ranks)...)
	}
	w.flight.number.Store(join.hellos[0].world)
	w.detector = newDeadlockDetector(len(w.homes))
	for rank, p := range w.homes {
		w.detector.ranks[rank].left = p != w.process // it counts only waits of ranks here
	}
	made := &World{w, w.open(len(w.homes), o)}
	join.begin()
	return made, nil
}

// digest describes what must be the same in all processes.
func digest(o Options) string {
	one := []byte{1, 0}
	return fmt.Sprintf("byte order %d, dtypes %d, kinds %d, chunks %d %d %d %d %d", binary.NativeEndian.Uint16(one), len(core.DTypes()),
		len(kindNames), smallLimit, reduceChunk, reduceChunkTotal, copyChunk, packedBytes)
}

// A helloMessage is the first message of a process. Its first fields are the same in all formats.
type helloMessage struct {
	format int
	ranks  int
	world  uint64 // of process 0: identifies the world in records
	digest string
	err    string // why the process does not join
}

func (h *helloMessage) encode() writer {
	w := writer{byte(hello)}
	w.int(wireFormat)
	w.int(h.ranks)
	w.id(h.world)
	w.bytes([]byte(h.digest))
	w.bytes([]byte(h.err))
	return w
}

func decodeHello(r *reader) *helloMessage {
	h := &helloMessage{format: r.int()}
	if h.format == wireFormat {
		h.ranks, h.world, h.digest, h.err = r.int(), r.id(), r.string(), r.string()
	}
	return h
}

// joining is the state while processes find each other.
type joining struct {
	world   *world
	changed chan struct{}

	mu     sync.Mutex
	hellos []*helloMessage
	queue  []earlyMessage // other messages that came before the world had ranks
	lost   map[int]error  // processes lost before that
	begun  bool
}

func (j *joining) wake() {
	select {
	case j.changed <- struct{}{}:
	default:
	}
}

// listen gets all messages of the transport.
func (j *joining) listen(from int, message []byte) {
	j.mu.Lock()
	r := &reader{rest: message}
	isHello := messageKind(r.byte()) == hello
	if isHello && j.hellos[from] == nil {
		j.hellos[from] = decodeHello(r)
		j.wake()
	} else if !isHello && !j.begun {
		j.queue = append(j.queue, earlyMessage{from, message})
		isHello = true
	}
	j.mu.Unlock()
	if !isHello {
		j.world.receive(from, message)
	}
}

// lose gets the losses of the transport.
func (j *joining) lose(process int, err error) {
	j.mu.Lock()
	begun := j.begun
	if !begun {
		j.lost[process] = err
		j.wake()
	}
	j.mu.Unlock()
	if begun {
		j.world.lose(process, err)
	}
}

// begin delivers the messages that have come since, and has later ones delivered at once.
func (j *joining) begin() {
	j.mu.Lock()
	for _, e := range j.queue {
		j.world.receive(e.from, e.message)
	}
	j.queue, j.begun = nil, true
	j.mu.Unlock()
	for p, err := range j.lost {
		j.world.lose(p, err)
	}
}

// wait waits for the hellos of all processes.
func (j *joining) wait(timeout time.Duration) error {
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	for {
		if done, err := j.check(); done || err != nil {
			return err
		}
		select {
		case <-j.changed:
		case <-timer.C:
			var missing []int
			j.mu.Lock()
			for p, h := range j.hellos {
				if h == nil {
					missing = append(missing, p)
				}
			}
			j.mu.Unlock()
			return core.Errorf(core.DistributedError, "world", "processes %v of %d have not joined within %v", missing, len(j.hellos), timeout)
		}
	}
}

func (j *joining) check() (done bool, err error) {
	fail := func(format string, args ...any) (bool, error) {
		return false, core.Errorf(core.DistributedError, "world", format, args...)
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	done = true
	mine := j.hellos[j.world.process]
	for p, h := range j.hellos {
		if h == nil {
			if done = false; j.lost[p] != nil {
				return fail("process %d is gone: %w", p, j.lost[p])
			}
			continue
		}
		if p == j.world.process {
			continue
		}
		switch {
		case h.format != wireFormat:
			return fail("process %d has another version of the engine: its messages have format %d, those of process %d format %d",
				p, h.format, j.world.process, wireFormat)
		case h.err != "":
			return fail("process %d does not join: %s", p, h.err)
		case h.digest != mine.digest:
			return fail("process %d does not fit: it has %s, process %d has %s", p, h.digest, j.world.process, mine.digest)
		case h.ranks < 1:
			return fail("process %d brings %d ranks", p, h.ranks)
		}
	}
	return done, nil
}

// Groups returns the handles of this process's ranks on the group of all ranks.
func (w *World) Groups() []*Group { return slices.Clone(w.groups) }

// Process returns the number of this process.
func (w *World) Process() int { return w.world.process }

// ProcessOf returns the number of the process in which a rank of the world lives.
func (w *World) ProcessOf(rank int) int { return w.world.home(rank) }

// Lose marks a process as lost because of err: pending and later operations with its ranks fail. It tells the other processes.
func (w *World) Lose(process int, err error) { w.world.lose(process, err) }

// Sent returns the bytes that this process has given to the transport, messages included.
func (w *World) Sent() int { return int(w.world.sent.Load()) }

// Close ends the process in its world: its ranks leave, transfers under way end, and the transport closes. Close the ranks' groups first.
func (w *World) Close() error {
	for _, g := range w.groups {
		g.Abort(errClosed)
	}
	w.world.mu.Lock()
	var ends []core.Event
	for j := range w.world.jobs {
		ends = append(ends, j.end)
	}
	w.world.mu.Unlock()
	w.world.awaitRecords()
	limit := time.Now().Add(closeWait)
	inUse := false
	for _, e := range ends {
		inUse = !e.WaitFor(time.Until(limit)) || inUse
	}
	for !inUse && w.world.busy() { // a job leaves its lane and its slots just after its end
		inUse = time.Now().After(limit)
		time.Sleep(closePause)
	}
	w.world.sharing.close(inUse)
	m := writer{byte(processLeft)}
	m.error(errClosed)
	w.world.tellAll(m)
	return w.world.transport.Close()
}

// post sends a message to another process, unless it is lost.
func (w *world) post(to int, message writer) {
	if w.lostProcess(to) == nil {
		w.sent.Add(int64(len(message)))
		w.transport.Post(to, message)
	}
}

// send sends data to another process.
func (w *world) send(to int, tag uint32, data []byte, done func(error)) {
	w.sent.Add(int64(len(data)))
	w.transport.Send(to, tag, data, done)
}

// tellAll sends a message to all other processes.
func (w *world) tellAll(message writer) {
	if w.transport == nil {
		return
	}
	for p := range w.transport.Processes() {
		if p != w.process {
			w.post(p, message)
		}
	}
}

func (w *world) tellLeft(rank int, err error) {
	m := writer{byte(rankLeftAll)}
	m.int(rank)
	m.error(err)
	w.tellAll(m)
}

// receive reads a message of another process.
func (w *world) receive(from int, message []byte) {
	r := &reader{rest: message}
	switch kind := messageKind(r.byte()); kind {
	case rankLeftAll:
		if rank, err := r.rank(len(w.homes)), r.error(); r.err == nil && w.home(rank) == from {
			w.leave(rank, err)
		}
	case processLost:
		if p, err := r.rank(w.transport.Processes()), r.error(); r.err == nil && p != w.process {
			if p == from { // it cannot reach this process
				w.loseQuietly(p, err)
			} else {
				w.lose(p, err)
			}
		}
	case processLeft:
		if err := r.error(); r.err == nil {
			w.leftBy(from, err)
		}
	case offered:
		w.sharing.receive(from, r)
	case faulted:
		if why := r.string(); r.err == nil {
			go w.record(why, false) // it may wait for a file
		}
	default:
		if m := w.group(r, from, kind, message); m != nil {
			m.mu.Lock()
			m.receive(from, kind, r)
			m.unlock()
		}
	}
	w.damaged(from, r)
}

// damaged loses a process that has sent a message that cannot be read.
func (w *world) damaged(from int, r *reader) {
	if r.err != nil {
		go w.lose(from, core.Errorf(core.DistributedError, "", "a message of its process cannot be read")) // a group may be locked
	}
}

// group reads the number of a group and returns it. If no rank of this process has made it yet, it keeps the message and returns nil.
func (w *world) group(r *reader, from int, kind messageKind, message []byte) *rendezvous {
	id := r.id()
	w.mu.Lock()
	defer w.mu.Unlock()
	m := w.groups[id]
	if m == nil && r.err == nil && kind.opensGroup() {
		w.early[id] = append(w.early[id], earlyMessage{from, message})
	}
	return m
}

// lostProcess returns why a process is lost, or nil.
func (w *world) lostProcess(p int) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.lost[p]
}

// lose removes a process and its ranks from the world, and tells the other processes.
func (w *world) lose(process int, err error) {
	if process == w.process || w.lostProcess(process) != nil {
		return
	}
	tell := func(process int, tell func(m writer)) {
		m := writer{byte(processLost)}
		m.int(process)
		m.error(err)
		tell(m)
	}
	tell(w.process, func(m writer) { w.post(process, m) }) // its last message from here, if it still lives
	w.loseQuietly(process, err)
	tell(process, w.tellAll)
}

// loseQuietly is lose without messages.
func (w *world) loseQuietly(process int, err error) { w.remove(process, w.fault(err), true) }

// leftBy removes a process that has left in order. The transport can end in order too, unless transfers with it are under way.
func (w *world) leftBy(process int, err error) {
	w.mu.Lock()
	jobs := slices.Collect(maps.Keys(w.jobs))
	w.mu.Unlock()
	w.remove(process, err, slices.ContainsFunc(jobs, func(j *wireJob) bool { return j.needs(process) }))
}

// remove removes a process and its ranks from the world, and if it is lost to the transport, from that.
func (w *world) remove(process int, err error, lost bool) {
	w.mu.Lock()
	again := w.lost[process] != nil
	w.lost[process] = err
	w.mu.Unlock()
	if again {
		return
	}
	if lost {
		w.transport.Lose(process, err)
	}
	for rank, p := range w.homes {
		if p == process {
			w.leave(rank, err)
		}
	}
	for _, m := range w.all() {
		if slices.Contains(m.peers, process) {
			m.lose(process, err)
		}
	}
}

// add counts a transfer as under way.
func (w *world) add(j *wireJob) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.jobs[j] = struct{}{}
}

// busy reports whether jobs have not been dropped yet.
func (w *world) busy() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.jobs) > 0
}

func (w *world) drop(j *wireJob) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.jobs, j)
}
