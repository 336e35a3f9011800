package control

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"
)

const (
	maxStatus = 64 << 10
	maxWords  = 1 << 20
	flushTime = 2 * time.Second // the longest wait of Say, Leave and Close
)

// A Channel is a process's end of the control channel. Its methods may be called from any goroutine.
type Channel struct {
	o        Options
	interval time.Duration // between heartbeats
	token    [32]byte
	ln       net.Listener
	ctx      context.Context
	cancel   context.CancelFunc
	wg       sync.WaitGroup

	mu        sync.Mutex
	changed   *sync.Cond
	closed    bool
	going     bool // Leave was called: nobody is blamed any more
	peers     []*peer
	given     error  // this process was given up
	id        uint64 // of the last news of this process
	leaving   []uint32
	rewire    bool
	questions map[uint64]*question
	events    []func()
	eventDue  chan struct{}
}

// A peer is what is known of a process.
type peer struct {
	c         *Channel
	number    int
	host      string
	addresses []string
	link      *link // or nil
	left      bool
	lost      *Loss
	status    []byte
	words     []byte
	seen      map[uint64]*link // news of this process by id, and the link that they came by
	newest    uint64
}

// gone says whether nothing is to be sent to the process any more. The channel is locked.
func (p *peer) gone() bool { return p.left || p.lost != nil || p.c.given != nil }

func (c *Channel) goLocked(f func()) bool {
	if c.closed {
		return false
	}
	c.wg.Go(f)
	return true
}

func (c *Channel) goDo(f func()) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.goLocked(f)
}

func (c *Channel) closeWhenDone(conn net.Conn) (stop func() bool) {
	return context.AfterFunc(c.ctx, func() { _ = conn.Close() })
}

// wait waits until ready or for d, and says whether it is ready. The channel is locked.
func (c *Channel) wait(d time.Duration, ready func() bool) bool {
	late := false
	t := time.AfterFunc(d, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		late = true
		c.changed.Broadcast()
	})
	defer t.Stop()
	for !ready() {
		if late || c.closed {
			return false
		}
		c.changed.Wait()
	}
	return true
}

// flushed waits until all linked processes have what was sent. The channel is locked.
func (c *Channel) flushed() error {
	var missing []int
	ok := c.wait(flushTime, func() bool {
		missing = missing[:0]
		for _, p := range c.peers {
			if p.link != nil && !p.gone() && len(p.link.unacked) > 0 {
				missing = append(missing, p.number)
			}
		}
		return len(missing) == 0
	})
	if !ok {
		return fmt.Errorf("control: processes %v have not acknowledged within %v", missing, flushTime)
	}
	return nil
}

// Say tells all others this process's last words, which are cut at 1 MiB. It returns when the linked processes have them, or with an error after
// 2 seconds.
func (c *Channel) Say(words []byte) error {
	words = words[:min(len(words), maxWords)]
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return errClosed
	}
	c.flood(wordsNews, words)
	return c.flushed()
}

// Leave says an orderly goodbye, which is no loss for the others, and closes the channel.
func (c *Channel) Leave() error {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return nil
	}
	c.going = true
	var err error
	start := time.Now()
	for again := true; again && err == nil && !c.closed && time.Since(start) < flushTime; again = c.rewire || len(c.leaving) > 0 {
		// Others may leave meanwhile, so that all links lead to such. Who stays must hear of this process and of them.
		c.rewire = false
		c.connect()
		c.leaving = append(c.leaving, uint32(c.o.Process))
		c.passLeaves()
		err = c.flushed()
	}
	c.mu.Unlock()
	return errors.Join(err, c.Close())
}

// Status returns the last status that came from a process: those of linked processes come with each heartbeat.
func (c *Channel) Status(process int) []byte {
	if process < 0 || process >= len(c.peers) {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.peers[process].status
}

// Close ends the channel without a goodbye: the others will report this process as lost. It may be called again, and from a callback.
func (c *Channel) Close() error {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return nil
	}
	_ = c.flushed()
	if c.closed { // by another goroutine meanwhile
		c.mu.Unlock()
		return nil
	}
	c.closed = true
	c.changed.Broadcast()
	for _, p := range c.peers {
		if p.link != nil && p.link.conn != nil {
			_ = p.link.conn.Close()
		}
	}
	c.mu.Unlock()
	c.cancel()
	err := c.ln.Close()
	ended := make(chan struct{})
	go func() {
		c.wg.Wait()
		close(ended)
	}()
	select {
	case <-ended:
	case <-time.After(flushTime): // a status function of the caller hangs
	}
	return err
}

var errClosed = errors.New("control: the channel is closed")

// event queues a call of one of the caller's functions. The channel is locked.
func (c *Channel) event(f func()) {
	c.events = append(c.events, f)
	signal(c.eventDue)
}

// deliver calls the caller's functions in order.
func (c *Channel) deliver() {
	for {
		c.mu.Lock()
		events := c.events
		c.events = nil
		c.mu.Unlock()
		for _, f := range events {
			f()
		}
		select {
		case <-c.ctx.Done():
			return
		case <-c.eventDue:
		}
	}
}
