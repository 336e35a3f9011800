package collective

import (
	"errors"
	"slices"
	"sync/atomic"

	"github.com/plait-ml/plait/core"
)

// A channel numbers some of a group's operations apart from the rest, and can be revoked: its pending operations then fail on every
// rank, and the group goes on. It is to a group what a communicator that was split off, and can be revoked, is in MPI.
type channel struct {
	number uint64                // the same on every rank; 0 is the group's own channel
	seq    atomic.Uint64         // counts operations
	made   atomic.Uint64         // counts channels that were made from this one
	left   atomic.Pointer[error] // of this rank's calls since it has revoked the channel
}

// Channel returns a handle on the same group with a new channel: ranks meet in its operations by the order of the calls through this
// handle, and those made from it, alone. The n-th call of every rank on the handles of one channel makes the same new one. It asks
// nobody.
func (g *Group) Channel() *Group {
	c := &channel{number: g.backend.Channel(g.channel.number, g.channel.made.Add(1))}
	return &Group{g.member, g.timeout, g.purpose, c}
}

// A channelKey names a channel as a rank does: the n-th that it has made from a parent.
type channelKey struct{ parent, n uint64 }

// A newChannel is one that not all ranks have made yet.
type newChannel struct {
	number  uint64
	missing int // ranks
}

// Channel implements [Backend].
func (l *local) Channel(parent, n uint64) uint64 {
	m := l.meeting
	core.Lock(&m.mu)
	defer m.mu.Unlock()
	key := channelKey{parent, n}
	c := m.channels[key]
	if c == nil {
		m.numbered++
		c = &newChannel{m.numbered, len(m.ranks)}
		m.channels[key] = c
	}
	if c.missing--; c.missing == 0 {
		delete(m.channels, key)
	}
	return c.number
}

// Revoke fails the operations of the handle's channel on every rank because of cause: those that are not launched yet, and all later
// ones. It waits for nobody. Ranks that go on make a new channel. The error names this rank, and is a memory error if cause is.
func (g *Group) Revoke(cause error) {
	if g.channel.number != 0 && g.channel.left.Load() == nil {
		err := g.backend.Revoke(g.channel.number, cause)
		g.channel.left.Store(&err)
	}
}

// Revoked returns the error with which a rank, this or another one, has revoked the handle's channel; nil if none has.
func (g *Group) Revoked() error {
	if err := g.channel.left.Load(); err != nil {
		return *err
	}
	if l, ok := g.backend.(*local); ok {
		m := l.meeting
		core.Lock(&m.mu)
		defer m.mu.Unlock()
		if r := m.revoked[g.channel.number]; r != nil {
			return r.err
		}
	}
	return nil
}

// A rankFailure is the error of a rank, as the others get it.
type rankFailure struct{ error }

// Unwrap returns the error with its kind.
func (e *rankFailure) Unwrap() error { return e.error }

// IsRevoked reports whether err comes from a channel that a rank has revoked.
func IsRevoked(err error) bool {
	var f *rankFailure
	return errors.As(err, &f)
}

// failureOf returns what the others are told of a rank that has failed because of cause: of one that has failed because of another, that
// rank's error.
func failureOf(rank int, cause error) error {
	var first *rankFailure
	if errors.As(cause, &first) {
		return first
	}
	kind := core.DistributedError
	if own, _ := core.KindOf(cause); own == core.MemoryError {
		kind = own // a smaller batch may do
	}
	return &rankFailure{core.Errorf(kind, "", "rank %d has failed: %w", rank, cause)}
}

// A revocation is the end of a channel.
type revocation struct {
	err   error
	ranks []int // that have revoked it, and make no calls in it any more
}

// Revoke implements [Backend].
func (l *local) Revoke(channel uint64, cause error) error {
	m := l.meeting
	core.Lock(&m.mu) // a caller with Python's lock must not wait for who launches
	defer m.mu.Unlock()
	r := m.revoked[channel]
	if r == nil {
		r = &revocation{err: failureOf(m.ranks[l.rank], cause)}
		m.revoked[channel] = r
	}
	if !slices.Contains(r.ranks, l.rank) {
		r.ranks = append(r.ranks, l.rank)
	}
	for at, round := range m.rounds {
		if at.channel != channel {
			continue
		}
		if !round.over {
			round.fail(r.err)
		}
		delete(m.rounds, at)
	}
	for _, list := range []*[]*post{&m.sends, &m.recvs} {
		*list = slices.DeleteFunc(*list, func(p *post) bool {
			if p.op.channel != channel {
				return false
			}
			p.fail(r.err)
			return true
		})
	}
	if len(r.ranks) == len(m.ranks) {
		delete(m.revoked, channel)
	}
	return r.err
}
