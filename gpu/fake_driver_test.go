package gpu

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/gpu/driver"
	"github.com/plait-ml/plait/gpu/shader"
)

func init() {
	core.RegisterBackend(core.Backend{Kind: "fakegpu", Count: func() int { return 3 }, Open: func(index, ordinal int) (core.Device, error) {
		f := &fakeDriver{shader.WGSL{}, 0}
		if index == 2 {
			f = &fakeDriver{shader.CUDA{}, 90}
		}
		return newDevice(index, ordinal, adapter{Adapter: f.Adapters()[0], driver: f})
	}})
}

// A fakeDriver is a driver for a GPU that accepts every program and copies bytes, but computes nothing. The third of its devices takes
// programs in CUDA C++.
type fakeDriver struct {
	language   shader.Language
	capability int
}

func (*fakeDriver) Name() string    { return "fake" }
func (*fakeDriver) Missing() string { return "" }
func (*fakeDriver) Shutdown() bool  { return true }

func (f *fakeDriver) Adapters() []driver.Adapter {
	return []driver.Adapter{{Name: "fake", Backend: "none", ComputeCapability: f.capability}}
}

func (f *fakeDriver) Open(int) (driver.GPU, error) {
	return &fakeGPU{language: f.language, programs: map[string]int{}}, nil
}

type fakeGPU struct {
	language shader.Language
	lost     string
	loseNext string         // with the next batch, the device is lost for this reason
	programs map[string]int // number of buffers by source
	runs     int
	busy     atomic.Bool // no batch ends
	groups   int         // workgroups of all runs
	graphs   int         // that have run
	noGraphs bool
}

func (*fakeGPU) Limits() driver.Limits {
	return driver.Limits{
		Buffer: 1 << 30, Binding: 1 << 30, Bindings: 16, UniformAlignment: 256, UniformBinding: 1 << 16, WorkgroupStorage: 48 << 10,
		Invocations: 1024, Workgroups: 65535, MappablePrimary: true, IdleBatch: 16,
	}
}

func (*fakeGPU) NewBuffer(_ driver.Usage, size int, _ bool) (driver.Buffer, error) {
	return &fakeBuffer{make([]byte, size)}, nil
}

func (g *fakeGPU) Language() shader.Language { return g.language }

func (g *fakeGPU) NewPipeline(p driver.Program) (driver.Pipeline, error) {
	g.programs[p.Source] = p.Buffers
	return &fakePipeline{p.Buffers}, nil
}

func (*fakeGPU) NewBindGroup(_ driver.Buffer, _ int, buffers []driver.Buffer) (driver.BindGroup, error) {
	return &fakeGroup{len(buffers)}, nil
}

func (*fakeGPU) NewCommandList() driver.CommandList { return &fakeList{} }

func (g *fakeGPU) Submit(l driver.CommandList, params driver.Buffer, data []byte, s driver.Status) {
	copy(params.(*fakeBuffer).memory, data)
	for _, run := range l.(*fakeList).commands {
		run(g)
	}
	if g.loseNext != "" {
		g.lost = g.loseNext
		return
	}
	s.(*fakeStatus).done = true
}

func (g *fakeGPU) NewStatus() driver.Status { return &fakeStatus{gpu: g} }
func (*fakeGPU) Poll()                      {}
func (*fakeGPU) Pause(d time.Duration)      { time.Sleep(d) }
func (g *fakeGPU) Lost() bool               { return g.lost != "" }
func (g *fakeGPU) Lose(reason string)       { g.lost = reason }
func (*fakeGPU) Close()                     {}

func (g *fakeGPU) TakeError() error {
	if g.lost != "" {
		return errors.New(g.lost)
	}
	return nil
}

type fakeBuffer struct{ memory []byte }

func (b *fakeBuffer) Size() int                   { return len(b.memory) }
func (b *fakeBuffer) Map(_ bool, s driver.Status) { s.(*fakeStatus).done = true }
func (b *fakeBuffer) Mapped() []byte              { return b.memory }
func (b *fakeBuffer) Unmap()                      {}
func (b *fakeBuffer) Release()                    {}

type fakePipeline struct{ buffers int }

func (*fakePipeline) Release() {}

type fakeGroup struct{ buffers int }

func (*fakeGroup) Release() {}

type fakeStatus struct {
	gpu  *fakeGPU
	done bool
}

func (s *fakeStatus) Done() (done, failed bool) { return s.done && !s.gpu.busy.Load(), false }
func (s *fakeStatus) Free()                     {}

// A fakeList is a command list. It panics on commands that no GPU could run.
type fakeList struct{ commands []func(g *fakeGPU) }

func (l *fakeList) Len() int { return len(l.commands) }
func (l *fakeList) Reset()   { l.commands = l.commands[:0] }

func (l *fakeList) Dispatch(p driver.Pipeline, g driver.BindGroup, params, x, y, z uint32) {
	if bound, want := g.(*fakeGroup).buffers, p.(*fakePipeline).buffers; bound != want {
		panic(fmt.Sprintf("%d buffers are bound to a program of %d", bound, want))
	}
	if params%256 != 0 || x == 0 || y == 0 || z == 0 || max(x, y, z) > 65535 {
		panic(fmt.Sprintf("parameters at %d for a grid of %d x %d x %d", params, x, y, z))
	}
	l.commands = append(l.commands, func(g *fakeGPU) {
		g.runs++
		g.groups += int(x) * int(y) * int(z)
	})
}

func (l *fakeList) Copy(to driver.Buffer, toOffset int, from driver.Buffer, fromOffset, size int) {
	l.commands = append(l.commands, func(*fakeGPU) {
		copy(to.(*fakeBuffer).memory[toOffset:toOffset+size], from.(*fakeBuffer).memory[fromOffset:fromOffset+size])
	})
}

func (l *fakeList) Clear(to driver.Buffer, offset, size int) {
	l.commands = append(l.commands, func(*fakeGPU) { clear(to.(*fakeBuffer).memory[offset : offset+size]) })
}

// LoseNext makes a device of the fake driver lost while it runs the next batch.
func LoseNext(d *Device, reason string) {
	d.thread.do(func() { d.thread.gpu.(*fakeGPU).loseNext = reason })
}

// KeepBusy has no batch of a device of the fake driver end until release is called, so that fusions and batches follow from the calls alone.
func KeepBusy(d *Device) (release func()) {
	var g *fakeGPU
	d.thread.do(func() { g = d.thread.gpu.(*fakeGPU) })
	g.busy.Store(true)
	return func() { g.busy.Store(false) }
}

// Ran returns how many programs a device of the fake driver has compiled, and how many dispatches it has run.
func Ran(d *Device) (programs, dispatches int) {
	d.thread.do(func() {
		g := d.thread.gpu.(*fakeGPU)
		programs, dispatches = len(g.programs), g.runs
	})
	return programs, dispatches
}

// Programs returns the programs that a device of the fake driver has compiled, in the order of their texts.
func Programs(d *Device) (texts []string) {
	d.thread.do(func() { texts = slices.Sorted(maps.Keys(d.thread.gpu.(*fakeGPU).programs)) })
	return texts
}

// Groups returns how many workgroups a device of the fake driver has run.
func Groups(d *Device) (groups int) {
	d.thread.do(func() { groups = d.thread.gpu.(*fakeGPU).groups })
	return groups
}

// A markedLanguage marks the declarations that it prints, so that a test sees which text kernels print themselves.
type markedLanguage struct{ shader.WGSL }

const markBegin, markEnd = "/*{*/", "/*}*/"

func marked(text string) string { return markBegin + text + markEnd }

func (l markedLanguage) Params() string { return marked(l.WGSL.Params()) }
func (l markedLanguage) Buffer(binding int, name, element string) string {
	return marked(l.WGSL.Buffer(binding, name, element))
}
func (l markedLanguage) Shared(name, element string, sizes ...int) string {
	return marked(l.WGSL.Shared(name, element, sizes...))
}
func (l markedLanguage) Private(name, element string, sizes ...int) string {
	return marked(l.WGSL.Private(name, element, sizes...))
}
func (l markedLanguage) Struct(name string, fields []shader.Variable) string {
	return marked(l.WGSL.Struct(name, fields))
}
func (l markedLanguage) Func(name string, params []shader.Variable, result string) string {
	return marked(l.WGSL.Func(name, params, result))
}
func (l markedLanguage) Main(threads int) string { return marked(l.WGSL.Main(threads)) }
func (l markedLanguage) Barrier() string         { return marked(l.WGSL.Barrier()) }
func (l markedLanguage) BufferBarrier() string   { return marked(l.WGSL.BufferBarrier()) }
func (l markedLanguage) AtomicAdd(place, value string) string {
	return marked(l.WGSL.AtomicAdd(place, value))
}
func (l markedLanguage) AtomicAnd(place, value string) string {
	return marked(l.WGSL.AtomicAnd(place, value))
}
func (l markedLanguage) AtomicOr(place, value string) string {
	return marked(l.WGSL.AtomicOr(place, value))
}
func (l markedLanguage) AtomicLoad(place string) string { return marked(l.WGSL.AtomicLoad(place)) }
func (l markedLanguage) AtomicStore(place, value string) string {
	return marked(l.WGSL.AtomicStore(place, value))
}

// Mark has a device's programs printed in a language that marks what it prints.
func Mark(d *Device) { d.target.Language = markedLanguage{} }

var markedText = regexp.MustCompile(`(?s)/\*\{\*/.*?/\*\}\*/`)

// OwnTexts returns what the programs of a device of the fake driver, whose language marks what it prints, have written themselves.
func OwnTexts(d *Device) (texts []string) {
	d.thread.do(func() {
		for text := range d.thread.gpu.(*fakeGPU).programs {
			_, text, _ = strings.Cut(text, markBegin) // types and the library come before
			texts = append(texts, markedText.ReplaceAllString(markBegin+text, ""))
		}
	})
	return texts
}

// A fakeGraph is commands with the data of their parameters.
type fakeGraph struct {
	commands []func(g *fakeGPU)
	params   *fakeBuffer
	data     []byte
	released *bool
}

// NewGraph implements [driver.GraphGPU].
func (g *fakeGPU) NewGraph(l driver.CommandList, params driver.Buffer, data []byte) (driver.Graph, error) {
	if g.noGraphs {
		return nil, errors.New("no graphs today")
	}
	return &fakeGraph{slices.Clone(l.(*fakeList).commands), params.(*fakeBuffer), slices.Clone(data), new(bool)}, nil
}

func (x *fakeGraph) Release() { *x.released = true }

// Graph implements [driver.GraphList].
func (l *fakeList) Graph(x driver.Graph) {
	graph := x.(*fakeGraph)
	l.commands = append(l.commands, func(g *fakeGPU) {
		if *graph.released {
			panic("a graph runs after its release")
		}
		kept := slices.Clone(graph.params.memory)
		copy(graph.params.memory, graph.data)
		for _, run := range graph.commands {
			run(g)
		}
		copy(graph.params.memory, kept)
		g.graphs++
	})
}

// RefuseGraphs makes a device of the fake driver refuse graphs.
func RefuseGraphs(d *Device, yes bool) {
	d.thread.do(func() { d.thread.gpu.(*fakeGPU).noGraphs = yes })
}

// Graphs returns how many graphs a device of the fake driver has run.
func Graphs(d *Device) (n int) {
	d.thread.do(func() { n = d.thread.gpu.(*fakeGPU).graphs })
	return n
}
