package gpu

import (
	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/backend"
	"github.com/plait-ml/plait/gpu/kernel/fusion"
	"github.com/plait-ml/plait/gpu/shader"
)

// fuse adds the call to the encoder's fusion, or begins a new fusion with it, and reports whether it did.
func (s *stream) fuse(r *encoder, c *core.Call) bool {
	if s.device.fusions.Off {
		return false
	}
	m := fusion.Fusable(c)
	if m == nil && !fusion.Leads(c) {
		return false
	}
	number, bindings := s.recorded.Load()+1, s.device.limits.Bindings
	err := c.CheckInputs()
	if err == nil && r.fusion.Join(&s.releases, bindings, c, m, number) {
		return true
	}
	interrupted := r.fusion.Interrupted
	r.encode(false)
	if s.full(r.batch) {
		s.send(r)
	}
	if err != nil {
		return false
	}
	r.fusion.Interrupted = interrupted
	return r.fusion.Join(&s.releases, bindings, c, m, number)
}

// encode appends the commands of the fusion's calls to the batch and empties the fusion. They are one program, or the kernel of each call
// if there is no such program. interrupted says that the fusion ends early because somebody waits.
func (r *encoder) encode(interrupted bool) {
	f, s := &r.fusion, r.stream
	if f.N == 0 {
		return
	}
	f.Interrupted = f.Interrupted || interrupted
	defer f.Reset()
	if c := f.Led(); c != nil {
		s.device.fused.Add(1)
		s.perform(r, c)
		return
	}
	releases := &s.releases
	if r.capture != nil {
		releases = &r.capture.releases
	}
	f.MarkReleased(releases)
	// What is kept runs often, so its fusions are compiled when they occur for the first time.
	if f.N > 1 && s.device.lost.Get() == nil && (r.dispatchFusion() || r.capture != nil && r.dispatchFusion()) {
		s.device.fused.Add(int64(f.N - 1))
		s.device.moved.Add(int64(f.MovedBytes()))
		return
	}
	for i := range f.Members[:f.N] {
		s.perform(r, &f.Members[i].Call)
	}
}

// dispatchFusion dispatches the fusion as one program and reports whether there is one.
func (r *encoder) dispatchFusion() (done bool) {
	f := &r.fusion
	var err error
	defer func() {
		if err == nil {
			return
		}
		for i := range f.Members[:f.N] {
			if r.capture != nil {
				r.capture.refuse()
				continue
			}
			r.stream.FailCall(&f.Members[i].Call, err)
		}
		done = true
	}()
	defer backend.Recover("gpu", &err)
	return f.Dispatch(&r.Recorder, &r.device.fusions, r.device.programs.compileFusion)
}

// compileFusion returns the program of a fusion, or nil if the device does not accept it.
func (p *programs) compileFusion(key []byte, source *shader.Source) shader.Program {
	p.mu.Lock()
	defer p.mu.Unlock()
	if g := p.compile("fused", key, source); g.err == nil {
		return g
	}
	return nil
}
