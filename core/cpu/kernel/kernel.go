// Package kernel is where the CPU's kernels meet its device: the table of implementations by name and what each run is
// given. The families of kernels, in the folders below, register themselves here.
package kernel

import (
	"fmt"

	"github.com/plait-ml/plait/core"
)

// A Func runs a kernel: it turns the call's operands into pointers and makes one call into C. Operands may have any
// strides and, where the kernel does not say otherwise, be empty.
type Func func(ctx *Context, c *core.Call) error

var table []Func

// Register sets the implementation of a kernel, which package contract describes. Families call it from init.
func Register(k core.KernelID, f Func) {
	id := int(k)
	for len(table) <= id {
		table = append(table, nil)
	}
	if table[id] != nil {
		panic(fmt.Sprintf("cpu: kernel %q registered twice", k))
	}
	table[id] = checked(f)
}

// Lookup returns the implementation of a kernel, or nil.
func Lookup(id core.KernelID) Func {
	if int(id) < len(table) {
		return table[id]
	}
	return nil
}
