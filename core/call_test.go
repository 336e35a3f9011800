package core

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// A reused call has no operands left from an earlier call over a long list.
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
