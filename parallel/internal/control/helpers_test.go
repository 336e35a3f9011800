package control_test

import (
	"fmt"
	"net"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/plait-ml/plait/parallel/internal/control"
	"github.com/stretchr/testify/require"
)

const (
	short = 1200 * time.Millisecond // timeout of heartbeats
	bound = 10 * time.Second        // guards against hangs
)

// A member is a process of a test's world.
type member struct {
	*control.Channel
	mu    sync.Mutex
	lost  map[int]error
	words map[int]string
}

func newMember() *member { return &member{lost: map[int]error{}, words: map[int]string{}} }

func (m *member) options(o control.Options) control.Options {
	o.OnLost = func(process int, err error) {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.lost[process] = err
	}
	o.OnWords = func(process int, words []byte) {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.words[process] = string(words)
	}
	return o
}

func (m *member) losses() map[int]error {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := map[int]error{}
	for p, err := range m.lost {
		out[p] = err
	}
	return out
}

func (m *member) heard(process int) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.words[process]
}

// exchanger gathers the payloads of n goroutines.
func exchanger(n int) func(process int) func([]byte) ([][]byte, error) {
	var mu sync.Mutex
	rounds := map[int][][]byte{}
	full := map[int]chan struct{}{}
	missing := map[int]int{}
	return func(process int) func([]byte) ([][]byte, error) {
		calls := 0
		return func(b []byte) ([][]byte, error) {
			mu.Lock()
			r := calls
			calls++
			if rounds[r] == nil {
				rounds[r], full[r], missing[r] = make([][]byte, n), make(chan struct{}), n
			}
			all, ready := rounds[r], full[r]
			all[process] = b
			missing[r]--
			if missing[r] == 0 {
				close(ready)
			}
			mu.Unlock()
			<-ready
			return all, nil
		}
	}
}

// join makes a world of n channels, with options that change may adapt.
func join(t *testing.T, n int, timeout time.Duration, change func(process int, o *control.Options)) []*member {
	t.Helper()
	world := make([]*member, n)
	errs := make([]error, n)
	exchange := exchanger(n)
	var wg sync.WaitGroup
	for p := range n {
		world[p] = newMember()
		wg.Go(func() {
			o := control.Options{Process: p, Processes: n, Exchange: exchange(p), HeartbeatTimeout: timeout, Host: fmt.Sprint("host", p),
				Status: func() []byte { return fmt.Appendf(nil, "status of %d", p) },
				Answer: func(q []byte) []byte { return fmt.Appendf(nil, "%s from %d", q, p) }}
			if change != nil {
				change(p, &o)
			}
			world[p].Channel, errs[p] = control.Join(world[p].options(o))
		})
	}
	wg.Wait()
	for p, err := range errs {
		require.NoError(t, err, "process %d", p)
	}
	t.Cleanup(func() {
		for _, m := range world {
			wg.Go(func() { _ = m.Leave() })
		}
		wg.Wait()
	})
	return world
}

func eventually(t *testing.T, what string, ready func() bool) {
	t.Helper()
	require.Eventually(t, ready, bound, 5*time.Millisecond, what)
}

// checkLeaks fails the test if goroutines of the package are left at its end.
func checkLeaks(t *testing.T) {
	t.Cleanup(func() {
		var left string
		for range 400 {
			b := make([]byte, 4<<20)
			left = string(b[:runtime.Stack(b, true)])
			if !strings.Contains(left, "control.(*") {
				return
			}
			time.Sleep(5 * time.Millisecond)
		}
		t.Errorf("goroutines are left:\n%s", left)
	})
}

// A proxy stands before a process's port. While cut it passes nothing on, and neither accepts nor refuses.
type proxy struct {
	ln     net.Listener
	target string
	mu     sync.Mutex
	open   *sync.Cond
	cut    bool
	conns  map[net.Conn]bool
}

func newProxy(t *testing.T, target string) *proxy {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	x := &proxy{ln: ln, target: target, conns: map[net.Conn]bool{}}
	x.open = sync.NewCond(&x.mu)
	go func() {
		for {
			a, err := ln.Accept()
			if err != nil {
				return
			}
			b, err := net.Dial("tcp", target)
			if err != nil {
				_ = a.Close()
				continue
			}
			x.mu.Lock()
			x.conns[a], x.conns[b] = true, true
			x.mu.Unlock()
			go x.pass(a, b)
			go x.pass(b, a)
		}
	}()
	t.Cleanup(func() {
		_ = ln.Close()
		x.set(false, true)
	})
	return x
}

func (x *proxy) pass(to, from net.Conn) {
	b := make([]byte, 4096)
	for {
		n, err := from.Read(b)
		x.mu.Lock()
		for x.cut {
			x.open.Wait()
		}
		x.mu.Unlock()
		if err == nil {
			_, err = to.Write(b[:n])
		}
		if err != nil {
			_ = to.Close()
			_ = from.Close()
			return
		}
	}
}

// set cuts or heals. With broken, the connections that are open end too.
func (x *proxy) set(cut, broken bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.cut = cut
	if broken {
		for c := range x.conns {
			_ = c.Close()
		}
		clear(x.conns)
	}
	x.open.Broadcast()
}

func freePort(t *testing.T) string {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { _ = ln.Close() }()
	return ln.Addr().String()
}
