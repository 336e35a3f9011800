// Package kernel is the table of GPU kernels. Each subfolder is a kernel family, with the same name as in core/cpu/kernel. Kernels use
// package shader and this table only, not the runtime that executes what they record.
package kernel

import (
	"fmt"
	"sync/atomic"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/gpu/shader"
)

// A Func records the dispatches of a call.
type Func func(r *shader.Recorder, c *core.Call) error

var table atomic.Pointer[[]Func]

// Register sets the implementation of a kernel of package contract. Families call it from init.
func Register(k core.KernelID, f Func) {
	id := int(k)
	var t []Func
	if old := table.Load(); old != nil {
		t = *old
	}
	for len(t) <= id {
		t = append(t, nil)
	}
	if t[id] != nil {
		panic(fmt.Sprintf("gpu: kernel %q registered twice", k))
	}
	t[id] = f
	table.Store(&t)
}

// Lookup returns the implementation of a kernel, or nil.
func Lookup(id core.KernelID) Func {
	if t := table.Load(); t != nil && int(id) < len(*t) && id >= 0 {
		return (*t)[id]
	}
	return nil
}
