package core

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// A Profile collects what streams run, and when.
type Profile struct {
	start  time.Time
	shapes bool

	mu         sync.Mutex
	executions []Execution
}

// An Execution is one call that a stream ran.
type Execution struct {
	Op         string // the operation's name
	Kernel     KernelID
	Stream     Stream
	Start, End time.Duration // since the profile's start
	Shapes     [][]int       // of the inputs, where they are wanted
}

var profile atomic.Pointer[Profile]

// StartProfile begins to collect what all streams run. shapes says whether to keep the shapes of inputs.
//
// Errors: a profile that is still being collected.
func StartProfile(shapes bool) (*Profile, error) {
	p := &Profile{start: time.Now(), shapes: shapes}
	if !profile.CompareAndSwap(nil, p) {
		return nil, Errorf(StateError, "profile", "another profile is being collected")
	}
	return p, nil
}

// ActiveProfile returns the profile that is being collected, or nil. Streams ask it at each call that they run.
func ActiveProfile() *Profile { return profile.Load() }

// Now returns the time since the profile's start.
func (p *Profile) Now() time.Duration { return time.Since(p.start) }

// Record adds a call that s has run since the time from.
func (p *Profile) Record(s Stream, c *Call, from time.Duration) {
	e := Execution{Op: c.Op, Kernel: c.Kernel, Stream: s, Start: from, End: p.Now()}
	if p.shapes {
		for i := range c.Ins {
			e.Shapes = append(e.Shapes, slices.Clone(c.Ins[i].Shape))
		}
	}
	p.mu.Lock()
	p.executions = append(p.executions, e)
	p.mu.Unlock()
}

// Stop ends the collection and returns what was run, in the order of ending. Calls that have not been run yet are not in
// it.
func (p *Profile) Stop() []Execution {
	profile.CompareAndSwap(p, nil)
	p.mu.Lock()
	defer p.mu.Unlock()
	executions := p.executions
	p.executions = nil
	return executions
}
