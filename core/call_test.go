package core

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// A call that takes the place of one over a long list has no operands but its own.
func TestCallsForgetLongLists(t *testing.T) {
	number := &Tensor{isNumber: true, other: &noTensor{}}
	var c Call
	c.Reset(nil, 0, "long")
	for range longList + 1 {
		c.In(number).Out(number)
	}
	c.Clear()
	c.Reset(nil, 0, "short")
	for i := range 2 * len(c.ins) {
		c.In(nil).Out(nil)
		require.False(t, c.Ins[i].Present())
		require.False(t, c.Outs[i].Present())
	}
}
