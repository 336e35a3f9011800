package mesh

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/plait-ml/plait/parallel/collective"
)

// Passes keep the ranks of a mesh in step if one of them fails in the middle of a model's forward or backward pass and goes on with the next.
// Without them its next exchanges would meet those in which the other ranks still wait, and tensors of equal shapes would be mixed up.
//
// The exchanges of a pass are made in a channel of the mesh's groups and carry the number of the pass. A rank that fails revokes the channel,
// so the others fail with its error, at the latest where they meet: in [Pass.End], or before the next pass.

const passName = "pass of a model"

// passes are the passes of a mesh.
type passes struct {
	meet []*collective.Group // one per axis, for [passes.settle]
	now  atomic.Pointer[Pass]

	mu       sync.Mutex
	channels []*collective.Group // one per axis; replaced after a pass that failed
	open     bool                // the ranks have not met since the pass, or a backward pass through it, began
	failed   error               // why the pass has failed
	onFail   func(cause error)
}

// A Pass is one pass of a model.
type Pass struct {
	passes *passes
	number int
	groups []*collective.Group // one per axis
	ends   []*collective.Work  // of the exchanges with which it ends
}

// Exchange returns the group along axis i for exchanges within the current pass; [Mesh.Group] if there was no pass yet.
func (m *Mesh) Exchange(i int) *collective.Group {
	if now := m.passes.now.Load(); now != nil {
		return now.groups[i]
	}
	return m.Group(i)
}

// Pass returns the current pass, or nil before the first.
func (m *Mesh) Pass() *Pass { return m.passes.now.Load() }

// Open reports whether the pass is the mesh's current one and has not ended; a backward pass opens it again.
func (p *Pass) Open() bool {
	if p == nil {
		return false
	}
	q := p.passes
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.open && q.now.Load() == p
}

// OnFailedPass sets the function that is called when a pass has failed on this rank. It must not block.
func (m *Mesh) OnFailedPass(fn func(cause error)) { m.passes.onFail = fn }

// BeginPass begins a pass of a model whose parts exchange along the mesh. All ranks of the mesh call it, in the same order. It waits for them
// if they have not met since the last pass began.
func (m *Mesh) BeginPass() error {
	p := &m.passes
	if p.meet == nil {
		for _, g := range m.groups {
			own := g.For(passName).Channel()
			p.meet, p.channels = append(p.meet, own), append(p.channels, own.Channel())
		}
	}
	if err := p.settle(); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.failed != nil {
		p.channels = nil // not in place: who revokes the old ones may still go through them
		for _, own := range p.meet {
			p.channels = append(p.channels, own.Channel())
		}
	}
	p.failed, p.open = nil, true
	next := &Pass{passes: p, number: 1}
	if before := m.Pass(); before != nil {
		next.number += before.number
	}
	for _, g := range p.channels {
		next.groups = append(next.groups, g.For(fmt.Sprintf("pass %d", next.number)))
	}
	p.now.Store(next)
	return nil
}

// settle fails the last pass on all ranks if it has failed on one, and the ranks have not met since.
func (p *passes) settle() error {
	p.mu.Lock()
	open, failure := p.open, ""
	if p.failed != nil {
		failure = p.failed.Error()
	}
	p.mu.Unlock()
	if !open {
		return nil
	}
	for _, g := range p.meet {
		w := g.For("the beginning of a pass").StartExchange(passName, []byte(failure))
		if err := w.Wait(); err != nil {
			return err
		}
		for _, said := range w.Payloads() {
			if failure == "" {
				failure = string(said)
			}
		}
	}
	if failure != "" {
		p.fail(errors.New(failure))
	}
	return nil
}

// Reopen says that a backward pass through p has begun, which ends with another [Pass.End].
func (p *Pass) Reopen() {
	q := p.passes
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.now.Load() == p {
		q.open, p.ends = true, nil
	}
}

// End waits until all ranks have ended the pass, for limit at most if it is not negative; over reports whether the wait is over. The error is
// that of a rank that has failed.
func (p *Pass) End(limit time.Duration) (over bool, err error) {
	for i, g := range p.groups {
		if i == len(p.ends) {
			p.ends = append(p.ends, g.For("the end of a pass").StartExchange(passName, nil))
		}
		w := p.ends[i]
		if limit < 0 {
			w.WaitForRanks()
		} else if over, _ := w.ArrivedOn(limit); !over {
			return false, nil
		}
		if err := w.Err(); err != nil {
			p.Fail(err)
			return true, err
		}
	}
	q := p.passes
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.now.Load() == p {
		q.open = false
	}
	return true, nil
}

// Fail fails the pass on all ranks because of cause, unless they have ended it, or begun another. It does not wait.
func (p *Pass) Fail(cause error) {
	if q := p.passes; q.now.Load() == p {
		q.fail(cause)
	}
}

func (p *passes) fail(cause error) {
	p.mu.Lock()
	if !p.open || p.failed != nil {
		p.mu.Unlock()
		return
	}
	p.failed = cause
	channels := p.channels
	p.mu.Unlock()
	for _, g := range channels {
		g.Revoke(cause)
	}
	if p.onFail != nil {
		p.onFail(cause)
	}
}
