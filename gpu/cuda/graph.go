//go:build cgo && linux && amd64

package cuda

// #include "shim.h"
import "C"

import (
	"errors"
	"fmt"
	"unsafe"

	"github.com/plait-ml/plait/gpu/driver"
)

// A graph is commands that the driver's library keeps. Their parameters are part of it.
type graph struct {
	g      *device
	exec   C.CUgraphExec
	copied *buffer  // what the commands copy from the parameters; nil for nothing
	names  []string // of the programs
}

// NewGraph implements [driver.GraphGPU]. The device's stream captures the commands; it runs none of them.
func (g *device) NewGraph(l driver.CommandList, _ driver.Buffer, data []byte) (driver.Graph, error) {
	c := l.(*commands)
	made := &graph{g: g, names: c.programs()}
	if len(c.list) == 0 {
		return nil, errors.New("a graph needs commands")
	}
	var copied *C.char
	if c.copies {
		b, err := g.NewBuffer(driver.MapWrite, max(len(data), 4), true)
		if err != nil {
			return nil, fmt.Errorf("no pinned memory for the %d bytes of a graph: %w", len(data), err)
		}
		made.copied = b.(*buffer)
		copy(made.copied.Mapped(), data)
		copied = (*C.char)(unsafe.Pointer(unsafe.SliceData(made.copied.Mapped())))
	}
	products := (*C.plaitk_lt_product)(unsafe.Pointer(unsafe.SliceData(c.products)))
	made.exec = C.plaitk_cu_capture(g.g, &c.list[0], C.int(len(c.list)), products, (*C.char)(unsafe.Pointer(unsafe.SliceData(data))), copied)
	if made.exec == nil {
		if made.copied != nil {
			made.copied.Release()
		}
		if g.Lost() {
			return nil, errors.New("the device is lost")
		}
		return nil, g.TakeError()
	}
	return made, nil
}

// Graph implements [driver.GraphList].
func (l *commands) Graph(x driver.Graph) {
	l.list = append(l.list, C.plaitk_cu_command{kind: C.PLAITK_CU_GRAPH, graph: x.(*graph).exec})
	l.graphs = append(l.graphs, x.(*graph))
}

// Release implements [driver.Graph].
func (x *graph) Release() {
	C.plaitk_cu_free_graph(x.g.g, x.exec)
	if x.copied != nil {
		x.copied.Release()
	}
}
