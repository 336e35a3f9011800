//go:build cgo && linux && amd64

package hostcuda

import (
	"errors"
	"time"
	"unsafe"

	"github.com/plait-ml/plait/gpu/driver"
	"github.com/plait-ml/plait/gpu/shader"
)

// capability is the compute capability times ten: no tensor cores that programs use.
const capability = 75

// A Driver has one GPU, which is the host.
type Driver struct {
	Backward bool // workgroups and invocations run in the opposite order
	Idle     bool // the GPU takes programs without compiling them, and runs none
}

// Name implements [driver.Driver].
func (*Driver) Name() string { return "hostcuda" }

// Missing implements [driver.Driver].
func (*Driver) Missing() string {
	if err := Missing(); err != nil {
		return err.Error()
	}
	return ""
}

// Adapters implements [driver.Driver].
func (*Driver) Adapters() []driver.Adapter {
	return []driver.Adapter{{Name: "host", Backend: "CUDA", ComputeCapability: capability, Multiprocessors: 4}}
}

// Open implements [driver.Driver].
func (d *Driver) Open(int) (driver.GPU, error) {
	if !d.Idle {
		if err := Missing(); err != nil {
			return nil, err
		}
	}
	return &GPU{backward: d.Backward, idle: d.Idle}, nil
}

// Shutdown implements [driver.Driver].
func (*Driver) Shutdown() bool { return true }

// A GPU runs each command as it is submitted.
type GPU struct {
	backward, idle bool
	programs       []driver.Program
	failure        error // of the last command
	lost           string
}

// Programs returns the programs that the GPU has taken.
func (g *GPU) Programs() []driver.Program { return g.programs }

// Limits implements [driver.GPU].
func (*GPU) Limits() driver.Limits {
	return driver.Limits{
		Buffer: 1 << 32, Binding: 1 << 32, Bindings: 16, UniformAlignment: 16, UniformBinding: 4096, WorkgroupStorage: 48 << 10,
		Invocations: 1024, Workgroups: 65535, MappablePrimary: true, IdleBatch: 2,
	}
}

// NewBuffer implements [driver.GPU].
func (*GPU) NewBuffer(usage driver.Usage, size int, _ bool) (driver.Buffer, error) {
	b, err := newBuffer(usage, size)
	if err != nil {
		return nil, err
	}
	return b, nil
}

// Language implements [driver.GPU].
func (*GPU) Language() shader.Language { return shader.CUDA{} }

// A pipeline is a program, nil on an idle GPU.
type pipeline struct{ program *program }

// Release implements [driver.Pipeline]. Programs stay loaded.
func (*pipeline) Release() {}

// NewPipeline implements [driver.GPU].
func (g *GPU) NewPipeline(p driver.Program) (driver.Pipeline, error) {
	g.programs = append(g.programs, p)
	if g.idle {
		return &pipeline{}, nil
	}
	loaded, err := load(p)
	if err != nil {
		return nil, err
	}
	return &pipeline{loaded}, nil
}

// NewBindGroup implements [driver.GPU].
func (*GPU) NewBindGroup(_ driver.Buffer, _ int, buffers []driver.Buffer) (driver.BindGroup, error) {
	list := make([]*buffer, len(buffers))
	for i, b := range buffers {
		list[i] = b.(*buffer)
	}
	return newGroup(list), nil
}

// NewStatus implements [driver.GPU].
func (g *GPU) NewStatus() driver.Status { return &status{} }

// Poll implements [driver.GPU].
func (*GPU) Poll() {}

// Pause implements [driver.GPU].
func (*GPU) Pause(d time.Duration) { time.Sleep(d) }

// TakeError implements [driver.GPU].
func (g *GPU) TakeError() error {
	err := g.failure
	if g.failure = nil; err == nil && g.lost != "" {
		err = errors.New(g.lost)
	}
	return err
}

// Lost implements [driver.GPU].
func (g *GPU) Lost() bool { return g.lost != "" }

// Lose implements [driver.GPU].
func (g *GPU) Lose(reason string) { g.lost = reason }

// Close implements [driver.GPU].
func (*GPU) Close() {}

// A status is done when what it was submitted with has run.
type status struct{ done bool }

// Done implements [driver.Status].
func (s *status) Done() (done, failed bool) { return s.done, false }

// Free implements [driver.Status].
func (*status) Free() {}

// A list is a command list.
type list struct {
	commands []func(g *GPU, params unsafe.Pointer) error
}

// NewCommandList implements [driver.GPU].
func (*GPU) NewCommandList() driver.CommandList { return &list{} }

// Len implements [driver.CommandList].
func (l *list) Len() int { return len(l.commands) }

// Reset implements [driver.CommandList].
func (l *list) Reset() { l.commands = l.commands[:0] }

// Dispatch implements [driver.CommandList].
func (l *list) Dispatch(p driver.Pipeline, g driver.BindGroup, params, x, y, z uint32) {
	l.commands = append(l.commands, func(gpu *GPU, data unsafe.Pointer) error {
		if gpu.idle {
			return nil
		}
		return p.(*pipeline).program.run(unsafe.Add(data, params), g.(*group), x, y, z, gpu.backward)
	})
}

// Copy implements [driver.CommandList].
func (l *list) Copy(to driver.Buffer, toOffset int, from driver.Buffer, fromOffset, size int) {
	l.commands = append(l.commands, func(*GPU, unsafe.Pointer) error {
		copy(to.(*buffer).Mapped()[toOffset:toOffset+size], from.(*buffer).Mapped()[fromOffset:fromOffset+size])
		return nil
	})
}

// Clear implements [driver.CommandList].
func (l *list) Clear(to driver.Buffer, offset, size int) {
	l.commands = append(l.commands, func(*GPU, unsafe.Pointer) error {
		clear(to.(*buffer).Mapped()[offset : offset+size])
		return nil
	})
}

// Submit implements [driver.GPU]. The device is not lost when a program fails, so that a test may go on; the GPU has the error.
func (g *GPU) Submit(l driver.CommandList, params driver.Buffer, data []byte, s driver.Status) {
	b := params.(*buffer)
	copy(b.memory, data)
	for _, run := range l.(*list).commands {
		if err := run(g, b.at()); err != nil && g.failure == nil {
			g.failure = err
		}
	}
	s.(*status).done = true
}
