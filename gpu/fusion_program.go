package gpu

import (
	"encoding/binary"
	"runtime/debug"
	"sync"

	"github.com/plait-ml/plait/core"
)

const (
	// compileAt is the weight at which a fusion is worth a program. Each time that one comes up where the calls themselves
	// say where it begins and ends weighs wholeWeight, so that it has its program from the second time on. One that began or
	// ended where it did by chance weighs 1 if it has all the members that it may, as a part of a long chain, and otherwise
	// nothing: it may never come up again.
	compileAt   = 32
	wholeWeight = 16
	// maxFused is how many programs of fusions a device compiles.
	maxFused = 256
	// maxCandidates is how many fusions a device remembers that have no program.
	maxCandidates = 4096
)

// fusedPrograms are the programs of a device's fusions, by what they depend on.
type fusedPrograms struct {
	off      bool
	at       int // the weight at which they are compiled
	mu       sync.Mutex
	byKey    map[string]*fusedProgram
	compiled int
}

// A fusedProgram is a fusion that came up, and its program once it has one.
type fusedProgram struct {
	weight  int
	program *program // nil where it has none, yet or because the device refuses it
	tried   bool
}

func (f *fusedPrograms) open() {
	f.at = compileAt
	f.off = !environment().fusion
	f.byKey = map[string]*fusedProgram{}
}

// get returns the program for a key, or nil where the calls go one by one.
func (f *fusedPrograms) get(key []byte, weight int, compile func() *program) *program {
	f.mu.Lock()
	defer f.mu.Unlock()
	x := f.byKey[string(key)]
	if x == nil && weight == 0 {
		return nil
	}
	if x == nil {
		if len(f.byKey)-f.compiled >= maxCandidates {
			for k, x := range f.byKey {
				if x.program == nil {
					delete(f.byKey, k)
				}
			}
		}
		x = &fusedProgram{}
		f.byKey[string(key)] = x
	}
	if x.tried {
		return x.program
	}
	if x.weight += weight; x.weight < f.at || f.compiled >= maxFused {
		return nil
	}
	x.tried = true
	if x.program = compile(); x.program != nil {
		f.compiled++
	}
	return x.program
}

// fused returns the program of a fusion, or nil if the device does not take it.
func (p *programs) fused(key []byte, buffers int, text string) *program {
	p.mu.Lock()
	defer p.mu.Unlock()
	if g := p.compile("fused", key, buffers, text); g.err == nil {
		return g
	}
	return nil
}

// fuse makes the call a member of the recorder's fusion, or of another that begins with it, and reports whether it did.
func (s *stream) fuse(r *recorder, c *core.Call) bool {
	if s.device.fusions.off {
		return false
	}
	m := fusable(c)
	if m == nil {
		return false
	}
	number := s.taken.Load() + 1
	err := c.CheckInputs()
	if err == nil && r.fusion.join(s, c, m, number) {
		return true
	}
	torn := r.fusion.torn
	r.fusion.encode(s, r, false)
	if s.full(r.batch) {
		s.send(r)
	}
	if err != nil {
		return false
	}
	r.fusion.torn = torn
	return r.fusion.join(s, c, m, number)
}

// encode puts what the members do on the batch, and empties the fusion: one program, or each member's own where there is
// none. torn says that the fusion ends for want of time.
func (f *fusion) encode(s *stream, r *recorder, torn bool) {
	if f.n == 0 {
		return
	}
	f.torn = f.torn || torn
	defer f.reset()
	f.forget(s)
	if f.n > 1 && s.device.lost.Load() == nil && f.dispatch(s, r) {
		s.device.fused.Add(int64(f.n - 1))
		return
	}
	for i := range f.members[:f.n] {
		s.perform(r, &f.members[i].call)
	}
}

// dispatch encodes the members as one program and reports whether there is one.
func (f *fusion) dispatch(s *stream, r *recorder) (done bool) {
	defer func() {
		if x := recover(); x != nil {
			err := core.Errorf(core.StateError, "gpu", "internal error: %v\n%s", x, debug.Stack())
			s.fail(err)
			for i := range f.members[:f.n] {
				f.members[i].call.Fail(err)
			}
			done = true
		}
	}()
	var mems [maxBuffers]core.Memory
	bound := f.operands[:0]
	for i := range f.sites {
		p := &f.sites[i]
		p.bound = -1
		if p.read || p.stored() {
			p.bound = len(bound)
			mems[p.bound] = p.Memory
			bound = append(bound, &p.Operand)
		}
	}
	f.operands = bound
	l := newLayout(f.shape, bound...)
	repeated, shape := elementwiseLoop(&l, bound, false)
	if 1+len(bound)+f.n+f.scalars+shape.rank*(1+len(bound)) > paramsWindow/4 {
		return false
	}
	f.identify(repeated, shape)
	weight := wholeWeight
	if f.torn {
		weight = f.n / maxMembers
	}
	p := r.device.fusions.get(f.key, weight, func() *program {
		return r.device.programs.fused(f.key, len(bound), f.source(repeated, shape))
	})
	if p == nil {
		return false
	}
	w := append(r.begin(), uint32(l.count))
	for _, o := range bound {
		w = append(w, base(o))
	}
	for range f.n {
		w = append(w, 0)
	}
	for i := range f.members[:f.n] {
		w = f.members[i].kernel.scalars(w, &f.members[i].call)
	}
	if shape.rank > 0 {
		w = l.words(w)
	}
	r.words = w
	return r.dispatch(p, shape.groups(l.count), w, mems[:len(bound)]...) == nil
}

// identify writes down what the program depends on, and gives sites their bindings.
func (f *fusion) identify(repeated uint64, shape elementwiseShape) {
	k := append(f.key[:0], uint8(shape.rank), uint8(f.n))
	if shape.four {
		k[0] |= 1 << 7
	}
	for i := range f.sites {
		p := &f.sites[i]
		if p.bound < 0 {
			continue
		}
		flags := uint8(p.DType)
		if p.read {
			flags |= 1 << 5
		}
		if repeated>>p.bound&1 == 1 {
			flags |= 1 << 6
		}
		written := uint8(0xff)
		if p.stored() {
			written = uint8(p.value)
		}
		k = append(k, flags, written)
	}
	k = append(k, 0xff)
	for i := range f.members[:f.n] {
		x := &f.members[i]
		k = binary.LittleEndian.AppendUint16(k, x.kernel.serial)
		for _, s := range x.ins[:len(x.call.Ins)] {
			switch {
			case s.number:
				k = append(k, 0xff)
			case s.value:
				k = append(k, 1<<7|s.at)
			default:
				k = append(k, uint8(f.sites[s.at].bound))
			}
		}
		for j := range x.call.Outs {
			k = append(k, uint8(x.call.Outs[j].DType))
		}
	}
	f.key = k
}
