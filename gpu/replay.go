package gpu

import (
	"sync/atomic"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/backend"
	"github.com/plait-ml/plait/gpu/driver"
	"github.com/plait-ml/plait/gpu/kernel"
	"github.com/plait-ml/plait/gpu/kernel/fusion"
	"github.com/plait-ml/plait/gpu/shader"
)

// NoteRelease says that nobody needs the contents of memory after the call launched last.
func (s *stream) NoteRelease(m core.Memory) { s.releases.Note(m.Handle, s.Tail.Load()) }

// Group implements [core.Grouper], for drivers that have graphs.
func (s *stream) Group(calls []core.GroupedCall) core.Group {
	if _, ok := s.device.thread.gpu.(driver.GraphGPU); !ok {
		return nil
	}
	return &group{stream: s, calls: calls}
}

// A group is consecutive calls of a recording. All that can is encoded once into graphs, in which fusions follow from the calls alone. Calls
// that may report a fault, or need the host in their middle, are recorded anew each time.
type group struct {
	stream *stream
	calls  []core.GroupedCall
	last   atomic.Uint64 // the number of the last launch

	// Used by the worker.
	encoded bool
	parts   []part
}

// A part is consecutive calls of a group. Without a graph they are recorded one by one.
type part struct {
	calls      []core.GroupedCall
	graph      driver.Graph
	dispatches int64
	scratch    *backend.Cache // of the graph
}

// A groupLaunch is a launch of a group, as the [core.Call.Own] of a call.
type groupLaunch struct {
	group  *group
	replay uint32
}

// Launch implements [core.Group].
func (g *group) Launch(replay uint32) {
	c := g.stream.Begin(-1, "replay")
	c.Own = &groupLaunch{g, replay}
	g.last.Store(g.stream.Enqueue(c))
}

// Close implements [core.Group].
func (g *group) Close() {
	core.WithoutForeignLock(func() { g.stream.Finish(g.last.Load()) })
	g.drop()
}

// drop releases the graphs.
func (g *group) drop() {
	for _, p := range g.parts {
		if p.graph != nil {
			g.stream.device.thread.do(p.graph.Release)
		}
		if p.scratch != nil {
			p.scratch.Close()
		}
	}
	g.parts = nil
}

// cancel fails the calls of a launch that was cancelled.
func (l *groupLaunch) cancel(err error) {
	for _, x := range l.group.calls {
		x.Call.ForReplay(l.replay)
		x.Call.Cancel(err)
	}
}

// run appends the commands of a launch to the batch.
func (l *groupLaunch) run(r *encoder) {
	g := l.group
	s := g.stream
	for _, x := range g.calls {
		x.Call.ForReplay(l.replay)
	}
	if !g.encoded && s.device.lost.Get() == nil {
		g.encoded = true
		g.encode()
	}
	if g.parts == nil {
		s.recordAll(r, g.calls)
	}
	for i := range g.parts {
		p := &g.parts[i]
		if p.graph == nil || s.device.lost.Get() != nil {
			s.recordAll(r, p.calls)
			continue
		}
		r.encode(false)
		failed := false
		for _, x := range p.calls {
			s.device.trace.Add(x.Call)
		}
		for _, x := range p.calls {
			failed = failed || x.Call.CheckInputs() != nil
		}
		if failed {
			for _, x := range p.calls {
				s.record(r, x.Call, nil)
			}
			continue
		}
		r.batch.list.(driver.GraphList).Graph(p.graph)
		s.device.dispatches.Add(p.dispatches)
		if s.inFlight.Load() == 0 {
			s.send(r)
		}
	}
	r.encode(false)
}

// recordAll records calls one by one.
func (s *stream) recordAll(r *encoder, calls []core.GroupedCall) {
	for _, x := range calls {
		s.device.trace.Add(x.Call)
		s.record(r, x.Call, nil)
		r.Flush()
	}
}

// encode makes the parts. It leaves none if an encoding fails.
func (g *group) encode() {
	alone := make([]bool, len(g.calls)) // the calls that belong to no graph
	for again := true; again; {
		again = false
		g.drop()
		for from := 0; from < len(g.calls); {
			to := from + 1
			for to < len(g.calls) && alone[to] == alone[from] {
				to++
			}
			p := part{calls: g.calls[from:to]}
			if !alone[from] {
				found, err := p.encode(g.stream, alone[from:to])
				again = again || found
				if err != nil {
					g.stream.device.noGraph.Set(err)
					g.parts = append(g.parts, p)
					g.drop()
					return
				}
			}
			g.parts = append(g.parts, p)
			from = to
		}
	}
}

// encode makes the part's graph. If it finds calls that cannot be in one, it marks them in alone and makes none.
func (p *part) encode(s *stream, alone []bool) (found bool, err error) {
	p.scratch = &backend.Cache{}
	p.scratch.Open(&s.device.memory)
	c := &capture{scratch: p.scratch, at: -1, alone: alone}
	r := &encoder{stream: s, device: s.device, batch: &batch{list: s.device.thread.gpu.NewCommandList()}, capture: c}
	r.Recorder.Runtime, r.Recorder.GPU = r, &s.device.target
	before := s.device.dispatches.Load()
	for i, x := range p.calls {
		c.take(r, x.Call, i)
		for _, m := range x.Released {
			c.releases.Note(m.Handle, uint64(i+1))
		}
	}
	r.encode(false)
	p.dispatches = s.device.dispatches.Load() - before
	if c.found || c.err != nil || r.batch.list.Len() == 0 {
		return c.found, c.err
	}
	r.batch.put(1, make([]byte, shader.MaxParamBytes)) // the binding of the last parameters extends this far
	defer backend.Recover("replay", &err)
	s.device.thread.do(func() {
		p.graph, err = s.device.thread.gpu.(driver.GraphGPU).NewGraph(r.batch.list, s.device.params, r.batch.params)
	})
	return false, err
}

// A capture is the encoding of calls whose commands are kept. Fusions do not depend on what the GPU does meanwhile.
type capture struct {
	scratch  *backend.Cache
	releases fusion.Releases
	at       int    // the call that is encoded, -1 for those of a fusion
	alone    []bool // calls that cannot be in a graph
	found    bool   // some were found
	err      error
}

// errAlone is the error of a kernel that needs what a capture does not have. The call is then recorded anew each time.
var errAlone = core.Errorf(core.StateError, "replay", "the call cannot be kept")

// refuse marks the call that is encoded.
func (c *capture) refuse() error {
	if c.at >= 0 {
		c.alone[c.at], c.found = true, true
	} else if c.err == nil {
		c.err = errAlone
	}
	return errAlone
}

// take encodes call number i, or adds it to the fusion.
func (c *capture) take(r *encoder, call *core.Call, i int) {
	s, number := r.stream, uint64(i+1)
	if !s.device.fusions.Off {
		if m := fusion.Fusable(call); m != nil || fusion.Leads(call) {
			if r.fusion.Join(&c.releases, s.device.limits.Bindings, call, m, number) {
				return
			}
			r.encode(false)
			if r.fusion.Join(&c.releases, s.device.limits.Bindings, call, m, number) {
				return
			}
		}
	}
	r.encode(false)
	c.at = i
	c.perform(r, call)
	c.at = -1
}

// perform encodes a call.
func (c *capture) perform(r *encoder, call *core.Call) {
	err := func() (err error) {
		defer backend.Recover(call.Op, &err)
		f := kernel.Lookup(call.Kernel)
		if f == nil {
			return r.stream.NoKernel(call)
		}
		return f(&r.Recorder, call)
	}()
	r.Release(0)
	if err != nil && (c.at < 0 || !c.alone[c.at]) {
		c.refuse()
	}
}
