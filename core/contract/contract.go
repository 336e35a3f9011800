// Package contract says, for each kernel, what the operation that launches it and the kernels that run it agree on: its
// name, its operands in order, and its attributes. There is a file for each family of operations.
//
// An operation launches a kernel by its variable here, and gives its attributes by a struct here:
//
//	c := op.call(contract.Scatter).Out(out).In(index).In(src)
//	op.launch(contract.ScatterAttrs{Dim: dim, Mode: contract.ScatterAdd}.AddTo(c))
//
// A kernel of any device registers itself under the same variable and reads them back:
//
//	kernel.Register(contract.Scatter, scatterCall)
//	a := contract.ScatterOf(c)
//
// The position of an attribute in a call is known to this package only. Elementwise kernels are not here: package expr
// defines their operands and generates them.
package contract

import (
	"fmt"
	"slices"
	"strings"

	"github.com/plait-ml/plait/core"
)

// A Contract lists what a kernel takes. Each field is a list of names, in order. A name that ends in "?" is optional;
// at the end of the list it may be left out. A name that ends in "..." stands for any number of entries.
type Contract struct {
	Name         string
	Outs, Ins    string     // operands
	Ints, Floats string     // attributes
	Pairs        core.Pairs // what it makes of complex operands
}

var contracts = map[core.KernelID]*Contract{}

// declare adds a contract and returns its kernel.
func declare(c Contract) core.KernelID {
	id := core.Kernel(c.Name)
	if contracts[id] != nil {
		panic(fmt.Sprintf("contract: kernel %q is declared twice", c.Name))
	}
	contracts[id] = &c
	if c.Pairs != core.NoPairs {
		core.DeclarePairs(c.Pairs, id)
	}
	if at := slices.Index(strings.Fields(c.Ints), "seed"); at >= 0 {
		core.DeclareSeeded(id, at)
	}
	return id
}

// Kernels returns all kernels that have a contract, sorted by name.
func Kernels() []core.KernelID {
	var all []core.KernelID
	for k := range contracts {
		all = append(all, k)
	}
	slices.SortFunc(all, func(a, b core.KernelID) int { return strings.Compare(contracts[a].Name, contracts[b].Name) })
	return all
}

// Check returns an error if the operands of a call, or the number of its attributes, differ from its kernel's contract.
func Check(call *core.Call) error {
	c := contracts[call.Kernel]
	if c == nil {
		return nil
	}
	for _, list := range []struct {
		what, names string
		n           int
		present     func(i int) bool
	}{
		{"outputs", c.Outs, len(call.Outs), func(i int) bool { return given(&call.Outs[i]) }},
		{"inputs", c.Ins, len(call.Ins), func(i int) bool { return given(&call.Ins[i]) }},
		{"integers", c.Ints, len(call.Ints), func(int) bool { return true }},
		{"floats", c.Floats, len(call.Floats), func(int) bool { return true }},
	} {
		if !matches(strings.Fields(list.names), list.n, list.present) {
			return fmt.Errorf("contract: the %s of kernel %q are [%s], %s launched it with %d", list.what, c.Name, list.names,
				call.Op, list.n)
		}
	}
	return nil
}

// given reports whether an operand is present. Tests make operands of raw memory, without a tensor.
func given(o *core.Operand) bool { return o.Present() || o.IsNumber || o.Memory.Ptr != nil }

// matches reports whether n entries, of which some may be absent, fit the names.
func matches(names []string, n int, present func(i int) bool) bool {
	for i, name := range names {
		switch {
		case strings.HasSuffix(name, "..."):
			return true // any number of entries may follow
		case strings.HasSuffix(name, "?"):
		case i >= n || !present(i):
			return false
		}
	}
	return n <= len(names)
}

// Flag returns a bool as an attribute: 1 for true, as in C.
func Flag(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

// Dim returns the dimension of a kernel whose first attribute is one.
func Dim(c *core.Call) int { return int(c.Ints[0]) }

// Dims returns the dimensions of a kernel that has no other integer attributes.
func Dims(c *core.Call) []int64 { return c.Ints }
