package gpu

import (
	"fmt"
	"os"
	"slices"
	"sync"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/gpu/native"
)

const (
	// paramsWindow is how many bytes of parameters a program sees.
	paramsWindow = 512
	// paramsRoom is the size of the buffer of a batch's parameters.
	paramsRoom = 1 << 20
	// maxBuffers is how many buffers a program may bind, where the device lets it.
	maxBuffers = 16
)

// A programKey names a program among those of its device: the generator's name, and what it specialises on.
type programKey struct {
	name string
	bits [5]uint64
	more string // of a [shader], the choices for which bits have no room
}

// A program is WGSL text and, once it was needed, its pipeline.
type program struct {
	buffers  int
	pipeline *native.Pipeline
	err      error
}

// A groupKey is the slabs that a program's buffers are in.
type groupKey struct {
	n     int
	slabs [maxBuffers]uint16
}

// programs holds what a device compiles and binds.
type programs struct {
	device  *Device
	mu      sync.Mutex
	byKey   map[programKey]*program
	groups  map[groupKey]*native.Group
	layouts [maxBuffers + 1]*native.Layout
}

func (p *programs) open(d *Device) {
	p.device = d
	p.byKey, p.groups = map[programKey]*program{}, map[groupKey]*native.Group{}
}

// get returns the program of a key; source writes it when it is needed for the first time. buffers is how many it binds.
func (p *programs) get(key programKey, buffers int, source func() string) (*program, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if g := p.byKey[key]; g != nil {
		return g, g.err
	}
	g := p.compile(key.name, key, buffers, source())
	p.byKey[key] = g
	return g, g.err
}

// compile returns the program of a text. p is locked. key is what it specialises on, for who looks at the text.
func (p *programs) compile(name string, key any, buffers int, text string) *program {
	g := &program{buffers: buffers}
	if os.Getenv("PLAIT_GPU_DUMP") == name {
		fmt.Fprintf(os.Stderr, "// %v\n%s\n", key, text)
	}
	if g.err = p.validate(text); g.err == nil {
		l := p.layout(buffers)
		p.device.owner.do(func() { g.pipeline, g.err = p.device.owner.gpu.NewPipeline(l, text) })
	}
	if g.err != nil {
		g.err = core.Errorf(core.DeviceError, name, "%v does not take the program: %w", p.device, g.err)
	}
	return g
}

// layout returns the layout for n buffers. p is locked.
func (p *programs) layout(n int) *native.Layout {
	if p.layouts[n] == nil {
		p.device.owner.do(func() { p.layouts[n] = p.device.owner.gpu.NewLayout(n, paramsWindow) })
	}
	return p.layouts[n]
}

// group returns the bind group of whole slabs.
func (p *programs) group(key groupKey) (*native.Group, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if g := p.groups[key]; g != nil {
		return g, nil
	}
	d := p.device
	buffers := make([]*native.Buffer, key.n)
	d.memory.mu.Lock()
	for i := range buffers {
		buffers[i] = d.memory.slabs[key.slabs[i]].buffer
	}
	d.memory.mu.Unlock()
	l := p.layout(key.n)
	var g *native.Group
	var err error
	d.owner.do(func() { g, err = d.owner.gpu.NewGroup(l, d.params, paramsWindow, buffers) })
	if err != nil {
		return nil, err
	}
	p.groups[key] = g
	return g, nil
}

// forget releases the bind groups of a slab that is given back.
func (p *programs) forget(slab int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for key, g := range p.groups {
		if slices.Contains(key.slabs[:key.n], uint16(slab)) {
			delete(p.groups, key)
			p.device.owner.do(g.Release)
		}
	}
}
