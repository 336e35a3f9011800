package gpu

import (
	"slices"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/gpu/driver"
)

func init() {
	core.RegisterBackend(core.Backend{Kind: "graphgpu", Count: func() int { return 1 }, Open: func(index, ordinal int) (core.Device, error) {
		e := gpus().entries[0]
		a := e.adapters[0]
		a.driver = graphDriver{a.driver}
		return newDevice(index, ordinal, a)
	}})
}

// A graphDriver adds graphs to a driver that has none, so that what is kept of calls can be tested on any GPU. It appends the commands of a
// graph to each list that has the graph, with their parameters.
type graphDriver struct{ driver.Driver }

func (d graphDriver) Open(index int) (driver.GPU, error) {
	g, err := d.Driver.Open(index)
	return &graphGPU{GPU: g}, err
}

type graphGPU struct {
	driver.GPU
	graphs int // run so far
}

func (g *graphGPU) NewCommandList() driver.CommandList { return &graphList{} }

func (g *graphGPU) Submit(l driver.CommandList, params driver.Buffer, data []byte, s driver.Status) {
	real := g.GPU.NewCommandList()
	data = slices.Clone(data)
	for _, add := range l.(*graphList).commands {
		add(g, real, 0, params, &data)
	}
	g.GPU.Submit(real, params, data, s)
}

func (g *graphGPU) NewGraph(l driver.CommandList, _ driver.Buffer, data []byte) (driver.Graph, error) {
	return &keptGraph{slices.Clone(l.(*graphList).commands), slices.Clone(data)}, nil
}

// An adder appends a command to a list whose parameters begin at an offset of the data. It may append to the data.
type adder func(g *graphGPU, to driver.CommandList, offset uint32, params driver.Buffer, data *[]byte)

type keptGraph struct {
	commands []adder
	data     []byte
}

func (*keptGraph) Release() {}

type graphList struct{ commands []adder }

func (l *graphList) Len() int { return len(l.commands) }
func (l *graphList) Reset()   { l.commands = l.commands[:0] }

func (l *graphList) Dispatch(p driver.Pipeline, b driver.BindGroup, params, x, y, z uint32) {
	l.commands = append(l.commands, func(_ *graphGPU, to driver.CommandList, offset uint32, _ driver.Buffer, _ *[]byte) {
		to.Dispatch(p, b, offset+params, x, y, z)
	})
}

func (l *graphList) Copy(dst driver.Buffer, at int, from driver.Buffer, fromOffset, size int) {
	l.commands = append(l.commands, func(_ *graphGPU, to driver.CommandList, offset uint32, params driver.Buffer, _ *[]byte) {
		first := fromOffset
		if from == params {
			first += int(offset)
		}
		to.Copy(dst, at, from, first, size)
	})
}

func (l *graphList) Clear(dst driver.Buffer, offset, size int) {
	l.commands = append(l.commands, func(_ *graphGPU, to driver.CommandList, _ uint32, _ driver.Buffer, _ *[]byte) {
		to.Clear(dst, offset, size)
	})
}

func (l *graphList) Graph(x driver.Graph) {
	kept := x.(*keptGraph)
	l.commands = append(l.commands, func(g *graphGPU, to driver.CommandList, _ uint32, params driver.Buffer, data *[]byte) {
		for len(*data)%256 != 0 {
			*data = append(*data, 0)
		}
		at := uint32(len(*data))
		*data = append(*data, kept.data...)
		for _, add := range kept.commands {
			add(g, to, at, params, data)
		}
		g.graphs++
	})
}

// KeptGraphs returns how many graphs a device of the kind "graphgpu" has run.
func KeptGraphs(d *Device) (n int) {
	d.thread.do(func() { n = d.thread.gpu.(*graphGPU).graphs })
	return n
}
