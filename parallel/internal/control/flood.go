package control

import (
	"encoding/binary"
	"slices"
	"time"
)

// Kinds of news.
const (
	lostNews     = iota + 1 // process uint32, reason uint8, alone uint8, silence in nanoseconds uint64, status
	wordsNews               // words
	questionNews            // question
)

const (
	lostHeader = 14
	seenNews   = 4096 // per process
	leaveDelay = 10 * time.Millisecond
)

// flood tells all processes, this one included. It returns the id of the news. The channel is locked.
func (c *Channel) flood(kind byte, body []byte) uint64 {
	c.id++
	b := binary.LittleEndian.AppendUint32(nil, uint32(c.o.Process))
	b = binary.LittleEndian.AppendUint64(b, c.id)
	c.news(nil, append(append(b, kind), body...))
	return c.id
}

// news takes in news, and passes them on if they are new. It returns false if they are not of the protocol. The channel is locked.
func (c *Channel) news(from *link, b []byte) bool {
	if len(b) < newsHeader {
		return false
	}
	origin, id, kind, body := binary.LittleEndian.Uint32(b), binary.LittleEndian.Uint64(b[4:]), b[12], b[newsHeader:]
	if int(origin) >= len(c.peers) {
		return false
	}
	p := c.peers[origin]
	if _, ok := p.seen[id]; ok || id+seenNews <= p.newest || (from != nil && p.number == c.o.Process) {
		return true
	}
	p.seen[id] = from
	if id > p.newest {
		p.newest = id
	}
	if len(p.seen) > 2*seenNews {
		for old := range p.seen {
			if old+seenNews <= p.newest {
				delete(p.seen, old)
			}
		}
	}
	switch kind {
	case lostNews:
		if len(body) < lostHeader || binary.LittleEndian.Uint32(body) >= uint32(len(c.peers)) {
			return false
		}
		if p.lost != nil {
			return true // who was given up blames nobody
		}
	case wordsNews, questionNews:
	default:
		return false
	}
	for _, q := range c.peers {
		if q.link != nil && q.link != from && q != p {
			q.link.send(newsFrame, b)
		}
	}
	switch kind {
	case lostNews:
		c.lostBy(p.number, body)
	case wordsNews:
		p.words = body
		if f := c.o.OnWords; f != nil && p.number != c.o.Process {
			c.event(func() { f(p.number, body) })
		}
	case questionNews:
		c.asked(p, id, body)
	}
	return true
}

// lose reports a process as lost.
func (c *Channel) lose(p *peer, why Reason, silence time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case p.gone() || c.closed:
	case c.going:
		p.left = true
		c.ended(p)
	default:
		c.loseLocked(p, why, silence, false)
	}
}

func (c *Channel) loseLocked(p *peer, why Reason, silence time.Duration, alone bool) {
	b := binary.LittleEndian.AppendUint32(nil, uint32(p.number))
	b = append(b, byte(why), 0)
	if alone {
		b[5] = 1
	}
	b = binary.LittleEndian.AppendUint64(b, uint64(silence))
	c.flood(lostNews, append(b, p.status...))
}

// lostBy marks a process as lost. The channel is locked.
func (c *Channel) lostBy(by int, b []byte) {
	p := c.peers[binary.LittleEndian.Uint32(b)]
	if p.lost != nil || p.left {
		return
	}
	loss := &Loss{Process: p.number, Host: p.host, Reason: Reason(b[4]), By: by, Alone: b[5] == 1, Silence: time.Duration(binary.LittleEndian.Uint64(b[6:])),
		Status: b[lostHeader:], Words: p.words}
	if len(loss.Status) == 0 {
		loss.Status = p.status
	}
	if p.number == c.o.Process {
		c.abandonedLocked(loss.Error())
		return
	}
	p.lost = loss
	c.ended(p)
	if f := c.o.OnLost; f != nil {
		c.event(func() { f(p.number, loss) })
	}
}

// ended lets go of a process that is lost. The channel is locked.
func (c *Channel) ended(p *peer) {
	c.rewire = true
	if l := p.link; l != nil {
		l.unacked = nil
		if l.conn != nil && p.lost != nil {
			_ = l.conn.Close()
		}
		signal(l.changed)
	}
	c.changed.Broadcast()
}

func (c *Channel) abandoned(cause string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.abandonedLocked(cause)
}

// abandonedLocked takes in that the others have given this process up.
func (c *Channel) abandonedLocked(cause string) {
	if c.given != nil || c.closed {
		return
	}
	c.given = &GivenUp{Process: c.o.Process, Cause: cause}
	for _, p := range c.peers {
		c.ended(p)
	}
	if f, err := c.o.OnLost, c.given; f != nil {
		c.event(func() { f(c.o.Process, err) })
	}
}

// leaves takes in who has left. The channel is locked.
func (c *Channel) leaves(b []byte) bool {
	if len(b)%4 != 0 {
		return false
	}
	for ; len(b) > 0; b = b[4:] {
		n := binary.LittleEndian.Uint32(b)
		if int(n) >= len(c.peers) {
			return false
		}
		p := c.peers[n]
		if p.left || p.lost != nil || p.number == c.o.Process {
			continue
		}
		p.left = true
		c.ended(p)
		c.leaving = append(c.leaving, n)
		if len(c.leaving) == 1 {
			// Processes leave together at the end of a job, so those of a moment are told in one message.
			time.AfterFunc(leaveDelay, func() {
				c.mu.Lock()
				defer c.mu.Unlock()
				c.passLeaves()
			})
		}
	}
	return true
}

// passLeaves tells the linked processes who has left. The channel is locked.
func (c *Channel) passLeaves() {
	if len(c.leaving) == 0 || c.closed {
		return
	}
	slices.Sort(c.leaving)
	var b []byte
	for _, n := range c.leaving {
		b = binary.LittleEndian.AppendUint32(b, n)
	}
	c.leaving = nil
	for _, p := range c.peers {
		if p.link != nil {
			p.link.send(leaveFrame, b)
		}
	}
}
