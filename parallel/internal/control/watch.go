package control

import "time"

const meshSize = 16 // up to here every process is linked to all others

// linked returns the positions on a ring of n to which position i has a link. If i is linked to j, j is to i.
func linked(i, n int) []int {
	var out []int
	add := func(j int) {
		if j != i {
			out = append(out, j)
		}
	}
	if n <= meshSize {
		for j := range n {
			add(j)
		}
		return out
	}
	for d := 1; d < n; d *= 2 {
		add((i + d) % n)
		add((i - d + n) % n)
	}
	return out
}

// connect makes the links that the processes that are left call for. Links are never taken away. The channel is locked.
func (c *Channel) connect() {
	var ring []*peer
	at := 0
	for _, p := range c.peers {
		if p.number == c.o.Process {
			at = len(ring)
		}
		if !p.gone() {
			ring = append(ring, p)
		}
	}
	if c.given != nil {
		return
	}
	for _, j := range linked(at, len(ring)) {
		c.linkTo(ring[j])
	}
}

// watch looks for silent processes and keeps the ring closed.
func (c *Channel) watch() {
	tick := c.interval / 2
	t := time.NewTicker(tick)
	defer t.Stop()
	last := time.Now()
	for {
		select {
		case <-c.ctx.Done():
			return
		case <-t.C:
		}
		now := time.Now()
		c.mu.Lock()
		if now.Sub(last) > tick+c.interval {
			c.refresh(now) // this process was stopped: what the others sent meanwhile has not been read yet
		}
		last = now
		if !c.going {
			c.blame(now)
		}
		if c.rewire && !c.going {
			c.rewire = false
			c.connect()
		}
		c.mu.Unlock()
	}
}

func (c *Channel) refresh(now time.Time) {
	for _, p := range c.peers {
		if p.link != nil {
			p.link.since = now
		}
	}
}

// blame gives up processes that have been silent for too long, and has a connection made anew that has been silent for a while, since TCP itself
// may take long to find that a cut has healed. The channel is locked.
func (c *Channel) blame(now time.Time) {
	var silent []*peer
	heard := false
	for _, p := range c.peers {
		l := p.link
		if l == nil || p.gone() {
			continue
		}
		silence := now.Sub(l.since)
		limit := c.o.HeartbeatTimeout
		if p.number < c.o.Process {
			// If only the network between the two is cut, the lower number gives up the higher one, which hears of it before it blames.
			limit += 2 * c.interval
		}
		if silence > limit {
			silent = append(silent, p)
		} else if silence <= c.interval+c.interval/2 {
			heard = true
		}
		if silence > 2*c.interval+c.interval/2 && p.number < c.o.Process && l.conn != nil {
			_ = l.conn.Close()
		}
	}
	for _, p := range silent {
		if !p.gone() {
			c.loseLocked(p, Silent, now.Sub(p.link.since), !heard)
		}
	}
}
