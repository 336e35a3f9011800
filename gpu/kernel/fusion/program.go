package fusion

import (
	"encoding/binary"
	"sync"

	"github.com/plait-ml/plait/gpu/kernel/elementwise"
	"github.com/plait-ml/plait/gpu/shader"
)

const (
	// compileAt is the weight at which a fusion gets a program of its own. A fusion whose start and end follow from the calls themselves
	// weighs wholeWeight each time it occurs, so it gets a program at its second occurrence. A fusion that started or ended by chance
	// weighs 1 if it has the maximum number of members, as a part of a long chain. Otherwise it weighs nothing: it may never occur again.
	compileAt   = 32
	wholeWeight = 16
	// maxFused is the maximum number of fusion programs that a device compiles.
	maxFused = 256
	// maxCandidates is the maximum number of fusions without a program that a device counts.
	maxCandidates = 4096
)

// Cache holds the fusion programs of a device.
type Cache struct {
	Off      bool
	at       int // weight at which a fusion is compiled
	mu       sync.Mutex
	byKey    map[string]*fusedProgram
	compiled int
}

// A fusedProgram is a fusion that has occurred, and its program once it has one.
type fusedProgram struct {
	weight  int
	program shader.Program // nil if it was not compiled or the device refused it
	tried   bool
}

// Open initialises the cache. off disables fusion.
func (f *Cache) Open(off bool) {
	f.at, f.Off = compileAt, off
	f.byKey = map[string]*fusedProgram{}
}

// Force compiles every fusion at its first occurrence, or disables fusion. It returns a function that restores the former state. It forgets
// all programs. Nothing may be in flight.
func (f *Cache) Force(on bool) (restore func()) {
	off, at := f.Off, f.at
	f.Off, f.at = !on, 1
	f.Drop()
	return func() {
		f.Off, f.at = off, at
		f.Drop()
	}
}

// Drop removes all programs and counts.
func (f *Cache) Drop() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.byKey, f.compiled = map[string]*fusedProgram{}, 0
}

// Count returns how many programs were compiled.
func (f *Cache) Count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.compiled
}

// get returns the program of a key, or nil if the calls are to run one by one.
func (f *Cache) get(key []byte, weight int, compile func() shader.Program) shader.Program {
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

// Dispatch runs the members as one program and reports whether there is one. compile compiles a new program; it returns nil if the device
// does not accept it.
func (f *Fusion) Dispatch(r *shader.Recorder, programs *Cache, compile func(key []byte, source *shader.Source) shader.Program) bool {
	r.Float64 = false // see [Fusable]
	mems := &r.Mems
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
	l := shader.NewLoop(f.shape, bound...)
	repeated, form := elementwise.LoopFormOf(&l, bound, false)
	if 1+len(bound)+f.N+f.scalars+form.Rank*(1+len(bound)) > shader.MaxParamBytes/4 {
		return false
	}
	f.identify(repeated, form)
	weight := wholeWeight
	if f.Interrupted {
		weight = f.N / maxMembers
	}
	p := programs.get(f.key, weight, func() shader.Program {
		return compile(f.key, r.Write(len(bound), func(w *shader.Text) { f.write(w, repeated, form) }))
	})
	if p == nil {
		return false
	}
	w := append(r.Begin(), uint32(l.Count))
	for _, o := range bound {
		w = append(w, shader.Base(o))
	}
	for range f.N {
		w = append(w, 0)
	}
	for i := range f.Members[:f.N] {
		w = f.Members[i].kernel.Scalars(r, w, &f.Members[i].Call)
	}
	if form.Rank > 0 {
		w = l.Words(w)
	}
	r.Words = w
	return r.Dispatch(p, form.Groups(l.Count), w, mems[:len(bound)]...) == nil
}

// MovedBytes returns the bytes of the tensors that the program of the last [Fusion.Dispatch] reads and writes.
func (f *Fusion) MovedBytes() int {
	n := 0
	for i := range f.sites {
		p := &f.sites[i]
		if p.read {
			n += shader.Bytes(&p.Operand)
		}
		if p.stored() {
			n += shader.Bytes(&p.Operand)
		}
	}
	return n
}

// identify sets key to everything that the program depends on.
func (f *Fusion) identify(repeated uint64, form elementwise.LoopForm) {
	k := append(f.key[:0], uint8(form.Rank), uint8(f.N))
	if form.Vec4 {
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
	for i := range f.Members[:f.N] {
		x := &f.Members[i]
		k = binary.LittleEndian.AppendUint16(k, x.kernel.Serial)
		for _, s := range x.ins[:len(x.Call.Ins)] {
			switch {
			case s.number:
				k = append(k, 0xff)
			case s.value:
				k = append(k, 1<<7|s.at)
			default:
				k = append(k, uint8(f.sites[s.at].bound))
			}
		}
		for j := range x.Call.Outs {
			k = append(k, uint8(x.Call.Outs[j].DType))
		}
	}
	f.key = k
}
