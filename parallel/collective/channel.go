package collective

import (
	"cmp"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/plait-ml/plait/core"
)

// A channel is an independent sequence of a group's operations that can be revoked: its pending operations then fail on every rank, while
// the group stays usable. MPI's equivalent is a communicator that was split off and can be revoked.
type channel struct {
	number uint64                // the same on every rank; 0 is the group's own channel
	seq    atomic.Uint64         // counts operations
	made   atomic.Uint64         // counts channels created from this one
	left   atomic.Pointer[error] // set once this rank has revoked the channel
}

// Channel returns a handle on the same group with a new channel. Operations through this handle, and through handles made from it, match
// only each other. The n-th call of every rank on handles of one channel creates the same new channel. It does not communicate.
func (g *Group) Channel() *Group {
	c := &channel{number: derived(g.channel.number, g.channel.made.Add(1))}
	return &Group{g.member, g.timeout, g.purpose, c}
}

// Revoke fails the operations of the handle's channel on every rank, with cause: those that are not launched yet, and all later ones. It
// does not block. Ranks that continue must create a new channel. The error names this rank. It is a memory error if cause is one.
func (g *Group) Revoke(cause error) {
	if g.channel.number != 0 && g.channel.left.Load() == nil {
		err := g.local.revoke(g.channel.number, cause)
		g.channel.left.Store(&err)
	}
}

// Revoked returns the error with which some rank has revoked the handle's channel; nil if none has.
func (g *Group) Revoked() error {
	if err := g.channel.left.Load(); err != nil {
		return *err
	}
	m := g.local.rendezvous
	core.Lock(&m.mu)
	defer m.mu.Unlock()
	if r := m.revoked[g.channel.number]; r != nil {
		return r.err
	}
	return nil
}

// A rankFailure is the failure of one rank as the other ranks see it.
type rankFailure struct{ error }

// Unwrap returns the wrapped error.
func (e *rankFailure) Unwrap() error { return e.error }

// IsRevoked reports whether err comes from a revoked channel.
func IsRevoked(err error) bool {
	var f *rankFailure
	return errors.As(err, &f)
}

// FailsStep reports whether an error of one rank's forward pass fails the step on all ranks: memory was lacking, or a rank did not take part,
// as after [Group.Revoke]. After other errors, such as a wrong argument, the rank may repeat the pass.
func FailsStep(err error) bool {
	kind, _ := core.KindOf(err)
	return kind == core.MemoryError || kind == core.DistributedError
}

// failureOf returns the error that other ranks get when a rank fails with cause. If cause is itself the failure of another rank, that
// failure is returned.
func failureOf(rank int, cause error) error {
	var first *rankFailure
	if errors.As(cause, &first) {
		return first
	}
	kind := core.DistributedError
	if own, _ := core.KindOf(cause); own == core.MemoryError {
		kind = own // so that callers may retry with a smaller batch
	}
	return &rankFailure{core.Errorf(kind, "", "rank %d has failed: %w", rank, cause)}
}

// A revocation records that a channel was revoked.
type revocation struct {
	err   error
	ranks []int // ranks that have revoked it, and make no more calls in it
}

// revoke is [Group.Revoke]. It returns the error that the channel's operations get.
func (l *local) revoke(channel uint64, cause error) error {
	m := l.rendezvous
	core.Lock(&m.mu) // a caller that holds Python's lock must not wait for the rank that launches
	r := m.revoked[channel]
	if r == nil {
		r = &revocation{err: failureOf(m.ranks[l.rank], cause)}
		m.revoked[channel] = r
	}
	m.tellRevoked(channel, l.rank, r.err)
	m.revokeBy(channel, l.rank, r)
	asked := m.undecided(channel, l.rank)
	m.unlock()
	for _, w := range asked {
		w.arrivedWithin(verdictWait)
	}
	return r.err
}

// verdictWait is how long a rank that revokes a channel waits for the word of another process on an exchange that may have taken place.
const verdictWait = 5 * time.Second

// revokeBy fails the channel's rounds and sends that are not launched.
func (m *rendezvous) revokeBy(channel uint64, rank int, r *revocation) {
	if !slices.Contains(r.ranks, rank) {
		r.ranks = append(r.ranks, rank)
	}
	var rounds []*round
	for at, round := range m.rounds {
		if at.channel == channel {
			rounds = append(rounds, round)
		}
	}
	// In order: who sees one fail knows that the earlier ones have.
	slices.SortFunc(rounds, func(a, b *round) int { return cmp.Compare(a.key.seq, b.key.seq) })
	for _, round := range rounds {
		if round.revoked = true; !round.over {
			round.fail(r.err)
		}
		round.forget()
	}
	for _, list := range []*[]*rankCall{&m.sends, &m.recvs} {
		*list = slices.DeleteFunc(*list, func(p *rankCall) bool {
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
}
