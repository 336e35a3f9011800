package control

import (
	"bufio"
	"encoding/binary"
	"net"
	"time"
)

// A link carries numbered frames to another process and back, over one connection after another. The channel's mutex guards it.
type link struct {
	c *Channel
	p *peer

	conn     net.Conn // or nil
	known    bool     // was connected once
	attempt  uint64
	since    time.Time // when something came last, or a fresh start was given
	received uint64    // last numbered frame that came
	sent     uint64    // last number given
	unacked  []frame
	written  uint64        // last numbered frame written to conn
	ackDue   bool          // a numbered frame has come
	wake     chan struct{} // there is something to write
	changed  chan struct{} // conn has changed, or the process is gone
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// linkTo returns the link to a process, which it makes if there is none. The channel is locked.
func (c *Channel) linkTo(p *peer) *link {
	if p.link == nil {
		p.link = &link{c: c, p: p, since: time.Now(), wake: make(chan struct{}, 1), changed: make(chan struct{}, 1)}
		c.goLocked(p.link.maintain)
	}
	return p.link
}

// send queues a numbered frame. The channel is locked.
func (l *link) send(kind byte, body []byte) {
	if l.p.gone() {
		return
	}
	l.sent++
	l.unacked = append(l.unacked, frame{kind, l.sent, body})
	signal(l.wake)
}

func (l *link) acknowledged(seq uint64) {
	n := 0
	for n < len(l.unacked) && l.unacked[n].seq <= seq {
		n++
	}
	if n > 0 {
		l.unacked = l.unacked[n:]
		l.c.changed.Broadcast()
	}
}

// attach makes conn the connection of the link. Frames that the other process has not received go out again. It returns nil, and closes conn, if
// there is a newer one.
func (l *link) attach(conn net.Conn, attempt, received uint64) net.Conn {
	c := l.c
	c.mu.Lock()
	defer c.mu.Unlock()
	if attempt != l.attempt || l.p.gone() || c.closed {
		_ = conn.Close()
		return nil
	}
	_ = conn.SetDeadline(time.Time{})
	l.conn, l.known, l.since = conn, true, time.Now()
	l.acknowledged(received)
	l.written = received
	c.goLocked(func() { l.read(conn) })
	c.goLocked(func() { l.write(conn) })
	signal(l.wake)
	signal(l.changed)
	c.changed.Broadcast()
	return conn
}

func (l *link) detach(conn net.Conn) {
	_ = conn.Close()
	l.c.mu.Lock()
	defer l.c.mu.Unlock()
	if l.conn == conn {
		l.conn = nil
		signal(l.changed)
	}
	signal(l.wake)
}

func (l *link) read(conn net.Conn) {
	defer l.detach(conn)
	r := bufio.NewReader(conn)
	for {
		f, err := readFrame(r)
		if err != nil {
			return
		}
		l.c.mu.Lock()
		if l.conn != conn {
			l.c.mu.Unlock()
			return
		}
		l.since = time.Now()
		ok := l.take(f)
		l.c.mu.Unlock()
		if !ok {
			return
		}
	}
}

// take handles a frame. It returns false if it is not one of the protocol. The channel is locked.
func (l *link) take(f frame) bool {
	if f.kind == beatFrame || f.kind == ackFrame {
		if len(f.body) < 8 {
			return false
		}
		l.acknowledged(binary.LittleEndian.Uint64(f.body))
		if f.kind == beatFrame {
			l.p.status = f.body[8:]
		}
		return true
	}
	if f.seq != l.received+1 {
		return f.seq <= l.received // it has come before
	}
	l.received = f.seq
	l.ackDue = true
	signal(l.wake)
	switch f.kind {
	case newsFrame:
		return l.c.news(l, f.body)
	case leaveFrame:
		return l.c.leaves(f.body)
	case answerFrame:
		return l.c.answered(f.body)
	}
	return false
}

// write sends heartbeats and what is queued.
func (l *link) write(conn net.Conn) {
	defer l.detach(conn)
	c := l.c
	beat := time.NewTicker(c.interval)
	defer beat.Stop()
	due := true
	for {
		var status []byte
		if due && c.o.Status != nil {
			status = c.o.Status()
			status = status[:min(len(status), maxStatus)]
		}
		c.mu.Lock()
		if l.conn != conn {
			c.mu.Unlock()
			return
		}
		var out []frame
		ack := binary.LittleEndian.AppendUint64(nil, l.received)
		if due {
			out = append(out, frame{beatFrame, 0, append(ack, status...)})
		} else if l.ackDue {
			out = append(out, frame{ackFrame, 0, ack})
		}
		l.ackDue = false
		for _, f := range l.unacked {
			if f.seq > l.written {
				out = append(out, f)
				l.written = f.seq
			}
		}
		c.mu.Unlock()
		for _, f := range out {
			_ = conn.SetWriteDeadline(time.Now().Add(c.o.HeartbeatTimeout))
			if writeFrame(conn, f) != nil {
				return
			}
		}
		select {
		case <-c.ctx.Done():
			return
		case <-l.wake:
			due = false
		case <-beat.C:
			due = true
		}
	}
}
