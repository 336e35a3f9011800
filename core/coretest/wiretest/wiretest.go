// Package wiretest has a transport between processes that are only parts of one test binary. It can delay messages, which changes the order
// of those with different tags, and lose processes.
package wiretest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"time"
)

// A Net connects the processes of one world.
type Net struct {
	ends  []*Transport
	delay time.Duration

	mu     sync.Mutex
	random *rand.Rand
}

// New returns a net of n processes. With a delay, each message takes a random time up to it, which the seed determines.
func New(n int, delay time.Duration, seed uint64) *Net {
	net := &Net{delay: delay, random: rand.New(rand.NewPCG(seed, 1))}
	for p := range n {
		t := &Transport{net: net, process: p, lost: map[int]error{}, told: map[int]bool{}, sends: map[key][]*transfer{}, recvs: map[key][]*transfer{},
			last: map[int]time.Time{}, wake: make(chan struct{}, 1), closed: make(chan struct{})}
		net.ends = append(net.ends, t)
	}
	return net
}

// Transport returns the end of process p.
func (n *Net) Transport(p int) *Transport { return n.ends[p] }

// pause returns a random time.
func (n *Net) pause() time.Duration {
	if n.delay <= 0 {
		return 0
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	return time.Duration(n.random.Int64N(int64(n.delay)))
}

// Lose cuts process p off. Each process is told of the loss of the others that it cannot reach any more, unless silent is set.
func (n *Net) Lose(p int, silent bool) {
	err := fmt.Errorf("the connection to process %d is lost", p)
	for q, t := range n.ends {
		if q != p {
			t.cut(p, err, silent)
			n.ends[p].cut(q, fmt.Errorf("the connection to process %d is lost", q), silent)
		}
	}
}

// A Transport is the end of one process.
type Transport struct {
	net     *Net
	process int

	mu       sync.Mutex
	listener func(from int, message []byte)
	onLost   func(process int, err error)
	inbox    []letter // by time of arrival
	last     map[int]time.Time
	sends    map[key][]*transfer // to this process, without a Recv
	recvs    map[key][]*transfer // without a Send
	cutOff   []int               // silently
	lost     map[int]error
	told     map[int]bool
	ended    bool
	bytes    int
	messages int

	busy   sync.Mutex // held while messages are delivered
	wake   chan struct{}
	closed chan struct{}
}

type letter struct {
	from    int
	message []byte
	due     time.Time
}

type key struct {
	from int
	tag  uint32
}

type transfer struct {
	data []byte
	done func(error)
}

// Name implements the interface of the package collective, as the other methods do.
func (t *Transport) Name() string { return "memory" }

// Process returns the number of the process.
func (t *Transport) Process() int { return t.process }

// Processes returns the number of processes.
func (t *Transport) Processes() int { return len(t.net.ends) }

// Bytes returns how many bytes the process has sent, without messages.
func (t *Transport) Bytes() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.bytes
}

// Messages returns how often the process has sent data.
func (t *Transport) Messages() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.messages
}

// Listen sets the function that gets messages.
func (t *Transport) Listen(f func(from int, message []byte)) {
	t.mu.Lock()
	t.listener = f
	t.mu.Unlock()
	go t.run()
}

// Lost sets the function that is called for lost processes.
func (t *Transport) Lost(f func(process int, err error)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.onLost = f
}

// Post sends a message.
func (t *Transport) Post(to int, message []byte) {
	t.mu.Lock()
	cut := t.ended || t.lost[to] != nil || slices.Contains(t.cutOff, to)
	t.mu.Unlock()
	if cut {
		return
	}
	o := t.net.ends[to]
	due := time.Now().Add(t.net.pause())
	o.mu.Lock()
	defer o.mu.Unlock()
	if due.Before(o.last[t.process]) {
		due = o.last[t.process]
	}
	o.last[t.process] = due
	i := len(o.inbox)
	for i > 0 && o.inbox[i-1].due.After(due) {
		i--
	}
	o.inbox = slices.Insert(o.inbox, i, letter{t.process, slices.Clone(message), due})
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

// Progress delivers messages that are due, and reports whether there were any.
func (t *Transport) Progress() (active bool) {
	if t.busy.TryLock() {
		_, active = t.deliver()
		t.busy.Unlock()
	}
	if !active {
		runtime.Gosched()
	}
	return active
}

// deliver delivers messages that are due, and returns how long the next one takes. The caller holds busy.
func (t *Transport) deliver() (wait time.Duration, active bool) {
	for {
		t.mu.Lock()
		if len(t.inbox) == 0 || t.ended {
			t.mu.Unlock()
			return time.Hour, active
		}
		l := t.inbox[0]
		if wait := time.Until(l.due); wait > 0 {
			t.mu.Unlock()
			return wait, active
		}
		t.inbox = t.inbox[1:]
		f := t.listener
		drop := t.lost[l.from] != nil || slices.Contains(t.cutOff, l.from)
		t.mu.Unlock()
		if !drop {
			f(l.from, l.message)
			active = true
		}
	}
}

func (t *Transport) run() {
	for {
		t.busy.Lock()
		wait, _ := t.deliver()
		t.busy.Unlock()
		timer := time.NewTimer(wait)
		select {
		case <-t.wake:
		case <-timer.C:
		case <-t.closed:
			timer.Stop()
			return
		}
		timer.Stop()
	}
}

// Send sends data.
func (t *Transport) Send(to int, tag uint32, data []byte, done func(error)) {
	t.mu.Lock()
	err := t.reason(to)
	if err == nil {
		t.bytes += len(data)
		t.messages++
	}
	t.mu.Unlock()
	if err != nil {
		done(err)
		return
	}
	t.net.ends[to].meet(key{t.process, tag}, &transfer{data, done}, true)
}

// Recv receives data.
func (t *Transport) Recv(from int, tag uint32, data []byte, done func(error)) {
	t.mu.Lock()
	err := t.reason(from)
	t.mu.Unlock()
	if err != nil {
		done(err)
		return
	}
	t.meet(key{from, tag}, &transfer{data, done}, false)
}

func (t *Transport) reason(peer int) error {
	if t.ended {
		return errors.New("the transport is closed")
	}
	return t.lost[peer]
}

// meet matches a send to this process with a receive.
func (t *Transport) meet(k key, x *transfer, sends bool) {
	mine, theirs := t.sends, t.recvs
	if !sends {
		mine, theirs = theirs, mine
	}
	t.mu.Lock()
	if err := t.lost[k.from]; err != nil {
		t.mu.Unlock()
		x.done(err)
		return
	}
	list := theirs[k]
	if len(list) == 0 {
		mine[k] = append(mine[k], x)
		t.mu.Unlock()
		return
	}
	y := list[0]
	if theirs[k] = list[1:]; len(list) == 1 {
		delete(theirs, k)
	}
	t.mu.Unlock()
	send, recv := x, y
	if !sends {
		send, recv = y, x
	}
	move := func() {
		var err error
		if len(send.data) != len(recv.data) {
			err = fmt.Errorf("tag %d: %d bytes were sent, %d are wanted", k.tag, len(send.data), len(recv.data))
		} else {
			copy(recv.data, send.data)
		}
		send.done(err)
		recv.done(err)
	}
	if pause := t.net.pause(); pause > 0 {
		go func() {
			time.Sleep(pause)
			move()
		}()
		return
	}
	move()
}

// Lose ends operations with a process.
func (t *Transport) Lose(process int, err error) {
	t.mu.Lock()
	if t.lost[process] == nil {
		t.lost[process] = err
	}
	failed := take(t.recvs, func(k key) bool { return k.from == process })
	failed = append(failed, take(t.sends, func(k key) bool { return k.from == process })...)
	t.mu.Unlock()
	o := t.net.ends[process]
	o.mu.Lock()
	failed = append(failed, take(o.sends, func(k key) bool { return k.from == t.process })...)
	o.mu.Unlock()
	for _, x := range failed {
		x.done(err)
	}
}

// take removes transfers.
func take(m map[key][]*transfer, which func(k key) bool) (list []*transfer) {
	for k, of := range m {
		if which(k) {
			list = append(list, of...)
			delete(m, k)
		}
	}
	return list
}

// cut ends the connection to a process.
func (t *Transport) cut(process int, err error, silent bool) {
	t.mu.Lock()
	t.cutOff = append(t.cutOff, process)
	f := t.onLost
	tell := !silent && !t.told[process] && f != nil && !t.ended
	t.told[process] = true
	t.mu.Unlock()
	if tell {
		t.Lose(process, err)
		go f(process, err)
	}
}

// Close ends the transport.
func (t *Transport) Close() error {
	t.mu.Lock()
	if t.ended {
		t.mu.Unlock()
		return nil
	}
	t.ended = true
	failed := take(t.recvs, func(key) bool { return true })
	t.mu.Unlock()
	close(t.closed)
	for _, o := range t.net.ends {
		o.mu.Lock()
		failed = append(failed, take(o.sends, func(k key) bool { return k.from == t.process })...)
		o.mu.Unlock()
	}
	for _, x := range failed {
		x.done(errors.New("the transport is closed"))
	}
	return nil
}
