package control

import (
	"errors"
	"fmt"
	"net"
	"syscall"
	"time"
)

// maintain keeps a link connected until its process is gone. The higher number dials; the lower one, when the connection has closed, asks whether
// the process is still there. A process that was never connected may have left a moment ago, so its port is asked for a while.
func (l *link) maintain() {
	c, p := l.c, l.p
	pause := 20 * time.Millisecond
	dials, start := c.o.Process > p.number, time.Now()
	if !dials && !l.sleep(50*time.Millisecond) {
		return
	}
	for {
		c.mu.Lock()
		conn, gone, known := l.conn, p.gone(), l.known
		c.mu.Unlock()
		if gone {
			return
		}
		if conn != nil {
			pause = 20 * time.Millisecond
			if !l.sleep(time.Hour) {
				return
			}
			continue
		}
		err := l.dial(!dials)
		switch {
		case errors.Is(err, syscall.ECONNREFUSED) && (known || c.isGoing() || time.Since(start) > c.o.HeartbeatTimeout/2):
			c.lose(p, Exited, 0)
			return
		case err == nil && dials:
			continue
		}
		if !l.sleep(pause) {
			return
		}
		pause = min(2*pause, time.Second, c.interval)
	}
}

func (c *Channel) isGoing() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.going
}

// sleep waits for a change of the link, at most d. It returns false when the channel ends.
func (l *link) sleep(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-l.c.ctx.Done():
		return false
	case <-l.changed:
	case <-t.C:
	}
	return true
}

// dial connects to a process, or only asks whether it is there. The error is ECONNREFUSED only if no address of it is listened on.
func (l *link) dial(probe bool) error {
	c, p := l.c, l.p
	c.mu.Lock()
	addresses := p.addresses
	c.mu.Unlock()
	var refused, failed error
	for _, a := range addresses {
		err := l.dialTo(a, probe)
		if err == nil {
			return nil
		}
		if errors.Is(err, syscall.ECONNREFUSED) {
			refused = err
		} else {
			failed = err
		}
	}
	if failed != nil {
		return failed
	}
	return refused
}

func (l *link) dialTo(address string, probe bool) error {
	c, p := l.c, l.p
	conn, err := (&net.Dialer{Timeout: min(c.interval, 2*time.Second)}).DialContext(c.ctx, "tcp", address)
	if err != nil {
		return err
	}
	stop := c.closeWhenDone(conn)
	defer stop()
	_ = conn.SetDeadline(time.Now().Add(c.interval))
	c.mu.Lock()
	if !probe {
		l.attempt++
	}
	h := hello{token: c.token, from: uint32(c.o.Process), to: uint32(p.number), probe: probe, attempt: l.attempt, received: l.received}
	c.mu.Unlock()
	_, err = conn.Write(h.bytes())
	if err != nil {
		_ = conn.Close()
		return fmt.Errorf("control: greeting process %d: %w", p.number, err)
	}
	kind, received, text, err := readReply(conn)
	if err != nil || kind != welcome || probe {
		_ = conn.Close()
		if err == nil && kind == hasLeft {
			c.lose(p, Exited, 0) // there is nothing more to tell it
		}
		if err == nil && kind == givenUp {
			c.abandoned(text)
		}
		return err
	}
	p.found(conn.RemoteAddr())
	l.attach(conn, h.attempt, received)
	return nil
}

// found puts the address that leads to the process alone in its list.
func (p *peer) found(remote net.Addr) {
	host, _, err := net.SplitHostPort(remote.String())
	if err != nil {
		return
	}
	p.c.mu.Lock()
	defer p.c.mu.Unlock()
	for _, a := range p.addresses {
		if h, _, _ := net.SplitHostPort(a); h == host {
			p.addresses = []string{a}
			return
		}
	}
}
