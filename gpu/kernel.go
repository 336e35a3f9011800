package gpu

import (
	"fmt"
	"sync/atomic"

	"github.com/plait-ml/plait/core"
)

// A kernelFunc turns a call into dispatches.
type kernelFunc func(r *recorder, c *core.Call) error

var table atomic.Pointer[[]kernelFunc]

// register sets the implementation of the kernel with the given name. Files of kernels call it from init.
func register(name string, f kernelFunc) {
	id := int(core.Kernel(name))
	var t []kernelFunc
	if old := table.Load(); old != nil {
		t = *old
	}
	for len(t) <= id {
		t = append(t, nil)
	}
	if t[id] != nil {
		panic(fmt.Sprintf("gpu: kernel %q registered twice", name))
	}
	t[id] = f
	table.Store(&t)
}

// lookup returns the implementation of a kernel, or nil.
func lookup(id core.KernelID) kernelFunc {
	if t := table.Load(); t != nil && int(id) < len(*t) && id >= 0 {
		return (*t)[id]
	}
	return nil
}
