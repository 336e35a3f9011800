// Package fusion fuses consecutive elementwise calls into one GPU program.
package fusion

import (
	"slices"
	"sync"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/contract"
	"github.com/plait-ml/plait/gpu/kernel/copying"
	"github.com/plait-ml/plait/gpu/kernel/elementwise"
	"github.com/plait-ml/plait/gpu/shader"
)

const (
	// maxMembers is how many calls one program stands for.
	maxMembers = 16
	// maxSites is how many operands members may have that are not numbers, those in the same place counted once, and how many
	// values they may compute.
	maxSites = 64
	// maxScalars is how many words of parameters their numbers and attributes may have.
	maxScalars = 40
)

// A Fusion is the list of elementwise calls that a stream has recorded last and not encoded yet. They loop over one shape, and a single
// program runs them. Later members read the results of earlier ones from registers. The program reads all inputs of an element before it
// writes anything, so members may reuse the memory of released tensors.
//
// A result is written to memory unless its memory was released, in program order, before the fusion ended: then nothing else can read it. A
// result that no member reads is always written, and a member that would overwrite it starts a new fusion. So a benchmark loop around one
// operation measures that operation.
type Fusion struct {
	Members []member // room for all; n are there
	N       int
	shape   []int
	vec4    bool // every member alone would loop over vec4
	sites   []site
	values  []value
	scalars int
	Torn    bool // where it began or ended was a matter of time, not of the program

	released []released // that are to be looked at, in order
	capacity []released // for them
	key      []byte
	operands []*core.Operand
}

// A member is one call of a fusion.
type member struct {
	kernel *elementwise.Kernel
	Call   core.Call // a copy: the stream uses its own for later ones
	Number uint64
	ins    [shader.MaxBuffers]source
}

// A source is where a member has an input from: a site, before any member wrote to it, or a value.
type source struct {
	at     uint8
	number bool // the call has it itself
	value  bool
}

// A site is an operand as memory: elements that members read or write.
type site struct {
	core.Operand
	read    bool   // from memory
	value   int    // the last that was written to it, or -1
	written uint64 // the call that did
	dead    bool   // the memory was released since then, and only members need the value
	bound   int    // which binding it has, or -1
}

// stored reports whether the program writes to the site.
func (p *site) stored() bool { return p.value >= 0 && !p.dead }

// gone reports whether the site does not matter any more.
func (p *site) gone() bool { return p.dead && !p.read }

// A value is what a member computes.
type value struct {
	DType core.DType
	read  bool // by a member
}

// A released says that memory was given back to its stream after a call, and no other stream used it.
type released struct {
	handle uint64
	after  uint64
}

// Fusable returns the program that the call applies to every element, if it can be a member of a fusion.
func Fusable(c *core.Call) *elementwise.Kernel {
	var m *elementwise.Kernel
	switch c.Kernel {
	case contract.Copy, contract.Fill:
		if in := &c.Ins[0]; !in.IsNumber && !in.Contiguous() {
			return nil // it may be one that transposes
		}
		m = copying.KernelOf(c)
	default:
		m = elementwise.KernelOf(c.Kernel)
	}
	if m == nil || m.Faults || len(c.Ins)+len(c.Outs) > shader.MaxBuffers {
		return nil
	}
	shape := c.Outs[0].Shape
	if core.Numel(shape) == 0 {
		return nil
	}
	for i := range c.Outs {
		o := &c.Outs[i]
		if o.DType == core.Float64 || !slices.Equal(o.Shape, shape) {
			return nil
		}
		for d, n := range shape {
			if n > 1 && o.Strides[d] == 0 {
				return nil
			}
		}
		for j := range c.Ins {
			if conflict(o, &c.Ins[j], shape) {
				return nil
			}
		}
		for j := range i {
			if o.Memory.Handle == c.Outs[j].Memory.Handle {
				return nil
			}
		}
	}
	for i := range c.Ins {
		if c.Ins[i].DType == core.Float64 && !c.Ins[i].IsNumber {
			return nil
		}
	}
	return m
}

// same reports whether operands of a loop over shape are the same elements in the same order.
func same(a, b *core.Operand, shape []int) bool {
	if a.Memory.Handle != b.Memory.Handle || a.Offset != b.Offset || a.DType != b.DType {
		return false
	}
	for d, n := range shape {
		if n > 1 && shader.StrideOf(a, shape, d) != shader.StrideOf(b, shape, d) {
			return false
		}
	}
	return true
}

// conflict reports whether, if one of two operands is written, the other may change at another point of the loop.
func conflict(a, b *core.Operand, shape []int) bool {
	if a.IsNumber || b.IsNumber || a.Memory.Handle != b.Memory.Handle || same(a, b, shape) {
		return false
	}
	from, to := extent(a)
	first, last := extent(b)
	return from < last && first < to
}

// extent returns the bytes of its memory between which an operand lies.
func extent(o *core.Operand) (from, to int) {
	from, to = o.Offset, o.Offset+1
	for d, s := range o.Strides {
		if s < 0 {
			from += s * (o.Shape[d] - 1)
		} else {
			to += s * (o.Shape[d] - 1)
		}
	}
	return from * o.DType.Size(), to * o.DType.Size()
}

// loopsVec4 reports whether the call's loop goes by vec4.
func loopsVec4(c *core.Call, room []*core.Operand) bool {
	shape := c.Outs[0].Shape
	all, dense := room[:0], true
	for _, list := range [2][]core.Operand{c.Ins, c.Outs} {
		for i := range list {
			if o := &list[i]; !o.IsNumber {
				all = append(all, o)
				dense = dense && shader.Base(o)%4 == 0 && slices.Equal(o.Shape, shape) && o.Contiguous()
			}
		}
	}
	if dense {
		return true
	}
	l := shader.NewLoop(shape, all...)
	_, how := elementwise.ShapeOf(&l, all, false)
	return how.Vec4
}

// find returns the site of an operand, or -1.
func (f *Fusion) find(o *core.Operand) int {
	for i := range f.sites {
		if p := &f.sites[i]; !p.gone() && same(&p.Operand, o, f.shape) {
			return i
		}
	}
	return -1
}

// fits reports whether the call can be a member beside those that are there.
func (f *Fusion) fits(bindings int, c *core.Call, m *elementwise.Kernel) bool {
	if f.N == maxMembers || !slices.Equal(c.Outs[0].Shape, f.shape) || loopsVec4(c, f.operands) != f.vec4 {
		return false
	}
	if f.scalars+m.ScalarWords(c) > maxScalars {
		return false
	}
	added := 0
	for i := range c.Ins {
		o := &c.Ins[i]
		if o.IsNumber {
			continue
		}
		if f.find(o) < 0 {
			added++
		}
		for j := range f.sites {
			if p := &f.sites[j]; !p.gone() && p.value >= 0 && conflict(&p.Operand, o, f.shape) {
				return false
			}
		}
	}
	for i := range c.Outs {
		o := &c.Outs[i]
		at := f.find(o)
		if at < 0 {
			added++
		} else if v := f.sites[at].value; v >= 0 && !f.values[v].read && !reads(c, o, f.shape) {
			return false
		}
		for j := range f.sites {
			if p := &f.sites[j]; !p.gone() && conflict(&p.Operand, o, f.shape) {
				return false
			}
		}
	}
	bound := added
	for i := range f.sites {
		if !f.sites[i].gone() {
			bound++
		}
	}
	return bound <= min(bindings, shader.MaxBuffers) && len(f.sites)+added <= maxSites && len(f.values)+len(c.Outs) <= maxSites
}

// reads reports whether what is in the site of the output is an input of the call.
func reads(c *core.Call, out *core.Operand, shape []int) bool {
	for i := range c.Ins {
		if o := &c.Ins[i]; !o.IsNumber && same(o, out, shape) {
			return true
		}
	}
	return false
}

// Join makes the call a member, unless it does not fit.
func (f *Fusion) Join(x *Releases, bindings int, c *core.Call, m *elementwise.Kernel, number uint64) bool {
	if f.N == 0 {
		f.shape, f.vec4 = c.Outs[0].Shape, loopsVec4(c, f.operands)
	} else if !f.fits(bindings, c, m) {
		f.Forget(x)
		if !f.fits(bindings, c, m) {
			return false
		}
	}
	if f.Members == nil {
		f.Members = make([]member, maxMembers)
	}
	m1 := &f.Members[f.N]
	m1.kernel, m1.Number = m, number
	copyCallTo(&m1.Call, c)
	for i := range c.Ins {
		o := &c.Ins[i]
		if o.IsNumber {
			m1.ins[i] = source{number: true}
			continue
		}
		at := f.site(o)
		if v := f.sites[at].value; v >= 0 {
			f.values[v].read = true
			m1.ins[i] = source{at: uint8(v), value: true}
		} else {
			f.sites[at].read = true
			m1.ins[i] = source{at: uint8(at)}
		}
	}
	for i := range c.Outs {
		p := &f.sites[f.site(&c.Outs[i])]
		p.value, p.written, p.dead = len(f.values), number, false
		f.values = append(f.values, value{DType: p.DType})
	}
	f.scalars += m.ScalarWords(c)
	f.N++
	return true
}

// site returns the site of an operand, a new one if it has none yet.
func (f *Fusion) site(o *core.Operand) int {
	if at := f.find(o); at >= 0 {
		return at
	}
	f.sites = append(f.sites, site{Operand: *o, value: -1})
	return len(f.sites) - 1
}

// copyCallTo makes to a copy of c that its stream does not use again.
func copyCallTo(to, c *core.Call) {
	to.Kernel, to.Op, to.InPlace, to.Overwrites = c.Kernel, c.Op, c.InPlace, c.Overwrites
	to.Outs, to.Ins = append(to.Outs[:0], c.Outs...), append(to.Ins[:0], c.Ins...)
	to.Ints, to.Floats = append(to.Ints[:0], c.Ints...), append(to.Floats[:0], c.Floats...)
}

// Forget marks the sites that no call but members uses, as far as releases after the last of these tell.
func (f *Fusion) Forget(x *Releases) {
	last := f.Members[f.N-1].Number
	for {
		if len(f.released) == 0 {
			f.capacity = x.take(f.capacity[:0])
			if f.released = f.capacity; len(f.released) == 0 {
				return
			}
		}
		next := f.released[0]
		if next.after > last {
			return
		}
		f.released = f.released[1:]
		for i := range f.sites {
			p := &f.sites[i]
			if p.value >= 0 && p.Memory.Handle == next.handle && p.written <= next.after && f.values[p.value].read {
				p.dead = true
			}
		}
	}
}

// Reset makes the fusion empty.
func (f *Fusion) Reset() {
	for i := range f.Members[:f.N] {
		f.Members[i].Call.Clear()
	}
	clear(f.sites)
	f.N, f.sites, f.values, f.scalars = 0, f.sites[:0], f.values[:0], 0
}

// Releases are those of a stream's memory that its worker has not looked at yet.
type Releases struct {
	mu   sync.Mutex
	list []released
}

// maxReleases is how many are kept; of memory whose release was not noted, values are written that need not be.
const maxReleases = 4096

// Note adds a release of memory after a call.
func (x *Releases) Note(handle, after uint64) {
	x.mu.Lock()
	if len(x.list) < maxReleases {
		x.list = append(x.list, released{handle, after})
	}
	x.mu.Unlock()
}

// take appends them to list.
func (x *Releases) take(list []released) []released {
	x.mu.Lock()
	list = append(list, x.list...)
	x.list = x.list[:0]
	x.mu.Unlock()
	return list
}
