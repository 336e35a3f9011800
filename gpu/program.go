package gpu

import (
	"fmt"
	"os"
	"slices"
	"sync"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/gpu/driver"
	"github.com/plait-ml/plait/gpu/shader"
)

const (
	// paramsRoom is the size of the buffer of a batch's parameters.
	paramsRoom = 1 << 20
)

// A program is compiled text and, once it was needed, its pipeline.
type program struct {
	buffers  int
	pipeline driver.Pipeline
	err      error
}

// A groupKey is the slabs that a program's buffers are in.
type groupKey struct {
	n     int
	slabs [shader.MaxBuffers]uint16
}

// programs holds what a device compiles and binds.
type programs struct {
	device *Device
	mu     sync.Mutex
	byKey  map[shader.Key]*program
	groups map[groupKey]driver.Group
}

func (p *programs) open(d *Device) {
	p.device = d
	p.byKey, p.groups = map[shader.Key]*program{}, map[groupKey]driver.Group{}
}

// get returns the program of a key and the error it was compiled with; nil if it was not compiled yet.
func (p *programs) get(key shader.Key) (shader.Program, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if g := p.byKey[key]; g != nil {
		return g, g.err
	}
	return nil, nil
}

// add compiles the program of a key, unless another stream has done so meanwhile.
func (p *programs) add(key shader.Key, source *shader.Source) (shader.Program, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	g := p.byKey[key]
	if g == nil {
		g = p.compile(key.Name, key, source)
		p.byKey[key] = g
	}
	return g, g.err
}

// compile compiles a program. p is locked. key is what it specialises on, for who looks at the text.
func (p *programs) compile(name string, key any, source *shader.Source) *program {
	g := &program{buffers: source.Buffers}
	if os.Getenv("PLAIT_GPU_DUMP") == name {
		fmt.Fprintf(os.Stderr, "// %v\n%s\n", key, source.Text)
	}
	if g.err = p.validate(source); g.err == nil {
		p.device.thread.do(func() {
			g.pipeline, g.err = p.device.thread.gpu.NewPipeline(source.Text, source.Buffers, shader.MaxParamBytes)
		})
	}
	if g.err != nil {
		g.err = core.Errorf(core.DeviceError, name, "%v does not take the program: %w", p.device, g.err)
	}
	return g
}

// group returns the bind group of whole slabs.
func (p *programs) group(key groupKey) (driver.Group, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if g := p.groups[key]; g != nil {
		return g, nil
	}
	d := p.device
	buffers := make([]driver.Buffer, key.n)
	d.memory.mu.Lock()
	for i := range buffers {
		buffers[i] = d.memory.slabs[key.slabs[i]].buffer
	}
	d.memory.mu.Unlock()
	var g driver.Group
	var err error
	d.thread.do(func() { g, err = d.thread.gpu.NewGroup(d.params, shader.MaxParamBytes, buffers) })
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
			p.device.thread.do(g.Release)
		}
	}
}
