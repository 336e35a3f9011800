package core

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// A Profile collects the calls that streams run, with their times.
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
	Shapes     [][]int       // of the inputs, if requested
}

var profile atomic.Pointer[Profile]

// StartProfile starts collecting the calls of all streams. shapes says whether to keep the shapes of inputs.
//
// Errors: another profile is active.
func StartProfile(shapes bool) (*Profile, error) {
	p := &Profile{start: time.Now(), shapes: shapes}
	if !profile.CompareAndSwap(nil, p) {
		return nil, Errorf(StateError, "profile", "another profile is being collected")
	}
	return p, nil
}

// ActiveProfile returns the active profile, or nil. Streams ask for it at each call that they run.
func ActiveProfile() *Profile { return profile.Load() }

// Now returns the time since the profile's start.
func (p *Profile) Now() time.Duration { return time.Since(p.start) }

// Record adds a call that s ran from the time from until now. It leaves out calls without a name, which are not operations.
func (p *Profile) Record(s Stream, c *Call, from time.Duration) {
	if c.Op == "" {
		return
	}
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

// Stop ends the collection and returns the calls in the order in which they ended. Calls that have not run yet are missing.
func (p *Profile) Stop() []Execution {
	profile.CompareAndSwap(p, nil)
	p.mu.Lock()
	defer p.mu.Unlock()
	executions := p.executions
	p.executions = nil
	return executions
}
