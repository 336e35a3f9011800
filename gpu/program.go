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
	// paramsRoom is the size of the buffer that holds the parameters of a batch.
	paramsRoom = 1 << 20
)

// A program is a compiled program, or the error of its compilation.
type program struct {
	buffers  int
	pipeline driver.Pipeline
	err      error
}

// A bindGroupKey is the slabs that a program binds, in the order of its bindings.
type bindGroupKey struct {
	n     int
	slabs [shader.MaxBuffers]uint16
}

// programs holds the compiled programs and bind groups of a device.
type programs struct {
	device *Device
	mu     sync.Mutex
	byKey  map[shader.Key]*program
	groups map[bindGroupKey]driver.BindGroup
}

func (p *programs) open(d *Device) {
	p.device = d
	p.byKey, p.groups = map[shader.Key]*program{}, map[bindGroupKey]driver.BindGroup{}
}

// get returns the program of a key and the error of its compilation. Both are nil if it has not been compiled.
func (p *programs) get(key shader.Key) (shader.Program, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if g := p.byKey[key]; g != nil {
		return g, g.err
	}
	return nil, nil
}

// add compiles the program of a key, unless another stream has done so in the meantime.
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

// compile compiles a program. The caller holds mu. key is printed with the text if PLAIT_GPU_DUMP is the program's name.
func (p *programs) compile(name string, key any, source *shader.Source) *program {
	g := &program{buffers: source.Buffers}
	if os.Getenv("PLAIT_GPU_DUMP") == name {
		fmt.Fprintf(os.Stderr, "// %v\n%s\n", key, source.Text)
	}
	if g.err = p.validate(source); g.err == nil {
		p.device.thread.do(func() {
			g.pipeline, g.err = p.device.thread.gpu.NewPipeline(driver.Program{
				Name: name, Source: source.Text, Buffers: source.Buffers, Params: shader.MaxParamBytes, Threads: source.Threads,
				Dynamic: source.Dynamic,
			})
		})
	}
	if g.err != nil {
		g.err = core.Errorf(core.DeviceError, name, "%v does not take the program: %w", p.device, g.err)
	}
	return g
}

// bindGroup returns the bind group of whole slabs.
func (p *programs) bindGroup(key bindGroupKey) (driver.BindGroup, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if g := p.groups[key]; g != nil {
		return g, nil
	}
	d := p.device
	buffers := make([]driver.Buffer, key.n)
	for i := range buffers {
		buffers[i] = allSlabs.get(int(key.slabs[i])).buffer
	}
	var g driver.BindGroup
	var err error
	d.thread.do(func() { g, err = d.thread.gpu.NewBindGroup(d.params, shader.MaxParamBytes, buffers) })
	if err != nil {
		return nil, err
	}
	p.groups[key] = g
	return g, nil
}

// releaseGroups releases the bind groups of a slab.
func (p *programs) releaseGroups(slab int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for key, g := range p.groups {
		if slices.Contains(key.slabs[:key.n], uint16(slab)) {
			delete(p.groups, key)
			p.device.thread.do(g.Release)
		}
	}
}
