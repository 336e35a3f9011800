// Package fusion fuses consecutive elementwise calls into one GPU program.
package fusion

import (
	"slices"
	"sync"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/contract"
	"github.com/plait-ml/plait/core/op/expr"
	"github.com/plait-ml/plait/gpu/kernel/copying"
	"github.com/plait-ml/plait/gpu/kernel/elementwise"
	"github.com/plait-ml/plait/gpu/shader"
)

const (
	// maxMembers is how many calls a program may fuse.
	maxMembers = 16
	// maxSites is how many distinct operands a fusion may have, and how many values it may compute. Numbers do not count.
	maxSites = 64
	// maxScalars is how many words of numbers and attributes a fusion may have.
	maxScalars = 40
)

// A Fusion is the list of elementwise calls that a stream has taken last and not yet encoded. All iterate over one shape, and a single
// program runs them. Later members read the results of earlier ones from registers. The program reads all inputs of an element before it
// writes any result, so members may reuse the memory of released tensors.
//
// A result is written to memory unless its memory was released, in program order, before the fusion ended: then nothing else can read it. A
// result that no member reads is always written, and a call that would overwrite it starts a new fusion. So a benchmark loop around one
// operation measures that operation.
type Fusion struct {
	Members     []member // has length maxMembers; N are used
	N           int
	shape       []int
	vec4        bool // every member on its own would iterate over vec4
	sites       []site
	values      []value
	scalars     int
	Interrupted bool // it began or ended because of timing, not because of the program
	led         bool // the first member is no elementwise call: see [Leads]

	released []released // releases not yet processed, in order
	capacity []released // memory for released
	key      []byte
	operands []*core.Operand
}

// A member is one call of a fusion.
type member struct {
	kernel *elementwise.Kernel
	Call   core.Call // a copy, because the stream reuses its calls
	Number uint64
	ins    [shader.MaxBuffers]source
}

// A source is where a member reads an input: a site that no member has written yet, or the value of a member.
type source struct {
	at     uint8
	number bool // the input is a number
	value  bool
}

// A site is a distinct operand in memory, which members read or write.
type site struct {
	core.Operand
	read    bool   // a member reads it from memory
	value   int    // index of the last value written to it, or -1
	written uint64 // the call that wrote this value
	dead    bool   // the memory was released since, and only members read the value
	bound   int    // index of its binding, or -1
}

// stored reports whether the program writes to the site.
func (p *site) stored() bool { return p.value >= 0 && !p.dead }

// gone reports whether the site is no longer needed.
func (p *site) gone() bool { return p.dead && !p.read }

// A value is a result of a member.
type value struct {
	DType core.DType
	read  bool // a member reads it
}

// A released is a piece of memory that was freed after a call, and that no other stream used.
type released struct {
	handle uint64
	after  uint64
}

// Fusable returns the elementwise kernel of a call that can be a member of a fusion, or nil. Calls with float64 cannot: a program computes in
// one floating-point type.
func Fusable(c *core.Call) *elementwise.Kernel {
	var m *elementwise.Kernel
	switch c.Kernel {
	case contract.Copy, contract.Fill:
		if in := &c.Ins[0]; !in.IsNumber && !in.Contiguous() {
			return nil // it may be faster as a transposing copy
		}
		m = copying.KernelOf(c)
	default:
		m = elementwise.KernelOf(c.Kernel)
	}
	if m == nil || m.Faults || m.Compute == expr.F64 || len(c.Ins)+len(c.Outs) > shader.MaxBuffers {
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

// same reports whether two operands, iterated over shape, are the same elements in the same order.
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

// conflict reports whether writing one of two operands may change elements of the other at a different point of the loop.
func conflict(a, b *core.Operand, shape []int) bool {
	if a.IsNumber || b.IsNumber || a.Memory.Handle != b.Memory.Handle || same(a, b, shape) {
		return false
	}
	from, to := extent(a)
	first, last := extent(b)
	return from < last && first < to
}

// extent returns the range of bytes in its memory that an operand occupies.
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

// loopsVec4 reports whether the call on its own would iterate over vec4.
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
	_, how := elementwise.LoopFormOf(&l, all, false)
	return how.Vec4
}

// find returns the index of an operand's site, or -1.
func (f *Fusion) find(o *core.Operand) int {
	for i := range f.sites {
		if p := &f.sites[i]; !p.gone() && same(&p.Operand, o, f.shape) {
			return i
		}
	}
	return -1
}

// fits reports whether the call can become a member.
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

// reads reports whether the call reads the elements that its output overwrites.
func reads(c *core.Call, out *core.Operand, shape []int) bool {
	for i := range c.Ins {
		if o := &c.Ins[i]; !o.IsNumber && same(o, out, shape) {
			return true
		}
	}
	return false
}

// Join adds the call to the fusion if it fits, and reports whether it did. m is nil for a call that leads a fusion.
func (f *Fusion) Join(x *Releases, bindings int, c *core.Call, m *elementwise.Kernel, number uint64) bool {
	if f.N == 0 {
		f.led = m == nil
	}
	if f.led || m == nil {
		return f.led && f.join(c, number)
	}
	if f.N == 0 {
		f.shape, f.vec4 = c.Outs[0].Shape, loopsVec4(c, f.operands)
	} else if !f.fits(bindings, c, m) {
		f.MarkReleased(x)
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

// site returns the index of an operand's site, and adds it if it is new.
func (f *Fusion) site(o *core.Operand) int {
	if at := f.find(o); at >= 0 {
		return at
	}
	f.sites = append(f.sites, site{Operand: *o, value: -1})
	return len(f.sites) - 1
}

// copyCallTo copies c to a call that the stream does not reuse.
func copyCallTo(to, c *core.Call) {
	to.Kernel, to.Op, to.InPlace, to.Overwrites = c.Kernel, c.Op, c.InPlace, c.Overwrites
	to.Outs, to.Ins = append(to.Outs[:0], c.Outs...), append(to.Ins[:0], c.Ins...)
	to.Ints, to.Floats = append(to.Ints[:0], c.Ints...), append(to.Floats[:0], c.Floats...)
}

// MarkReleased marks sites whose memory was released after the last write, so that their values need not be written.
func (f *Fusion) MarkReleased(x *Releases) {
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

// Reset empties the fusion.
func (f *Fusion) Reset() {
	for i := range f.Members[:f.N] {
		f.Members[i].Call.Clear()
	}
	clear(f.sites)
	f.N, f.sites, f.values, f.scalars, f.led = 0, f.sites[:0], f.values[:0], 0, false
}

// Releases are the releases of a stream's memory that its worker has not processed yet.
type Releases struct {
	mu   sync.Mutex
	list []released
}

// maxReleases is how many releases are kept. If one is dropped, a value is written that need not be.
const maxReleases = 4096

// Note adds the release of memory after a call.
func (x *Releases) Note(handle, after uint64) {
	x.mu.Lock()
	if len(x.list) < maxReleases {
		x.list = append(x.list, released{handle, after})
	}
	x.mu.Unlock()
}

// take moves the releases to list.
func (x *Releases) take(list []released) []released {
	x.mu.Lock()
	list = append(list, x.list...)
	x.list = x.list[:0]
	x.mu.Unlock()
	return list
}
