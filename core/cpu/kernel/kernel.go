// Package kernel is the table of CPU kernels, and defines the context that each call gets. Each subfolder is a family
// of kernels, which registers its kernels here.
package kernel

import (
	"fmt"

	"github.com/plait-ml/plait/core"
)

// A Func runs a kernel: it turns the call's operands into pointers and makes one call into C. Unless a kernel says
// otherwise, operands may be empty and may have any strides.
type Func func(ctx *Context, c *core.Call) error

var table []Func

// Register sets the implementation of a kernel. Families call it from init.
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
