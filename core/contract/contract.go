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
// No other package knows where an attribute is. Kernels that work element by element are not here: package expr has what
// they take, and writes them.
package contract

import (
	"fmt"
	"slices"
	"strings"

	"github.com/plait-ml/plait/core"
)

// A Contract is what a kernel takes. Each field is a list of names, in order. A name that ends in "?" may be absent, and left
// out at the end; one that ends in "..." stands for any number.
type Contract struct {
	Name         string
	Outs, Ins    string // operands
	Ints, Floats string // attributes
}

var contracts = map[core.KernelID]*Contract{}

// declare adds a kernel.
func declare(c Contract) core.KernelID {
	id := core.Kernel(c.Name)
	if contracts[id] != nil {
		panic(fmt.Sprintf("contract: kernel %q is declared twice", c.Name))
	}
	contracts[id] = &c
	return id
}

// Kernels returns every kernel that has a contract, by name.
func Kernels() []core.KernelID {
	var all []core.KernelID
	for k := range contracts {
		all = append(all, k)
	}
	slices.SortFunc(all, func(a, b core.KernelID) int { return strings.Compare(contracts[a].Name, contracts[b].Name) })
	return all
}

// Check returns an error unless a call has the operands and as many attributes as its kernel's contract says.
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

// given reports whether an operand is there; tests make some without a tensor.
func given(o *core.Operand) bool { return o.Present() || o.IsNumber || o.Memory.Ptr != nil }

// matches reports whether n things, of which some may be absent, are what the names say.
func matches(names []string, n int, present func(i int) bool) bool {
	for i, name := range names {
		switch {
		case strings.HasSuffix(name, "..."):
			return true // what follows is found by counting
		case strings.HasSuffix(name, "?"):
		case i >= n || !present(i):
			return false
		}
	}
	return n <= len(names)
}

// Flag is a bool as an attribute, and as C has it.
func Flag(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

// Dim returns the attribute of kernels that have one, the dimension that they work along.
func Dim(c *core.Call) int { return int(c.Ints[0]) }

// Dims returns the attributes of kernels that have nothing but dimensions.
func Dims(c *core.Call) []int64 { return c.Ints }
