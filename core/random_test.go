package core

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestGeneratorsHandOutPositions(t *testing.T) {
	g := NewGenerator(5)
	seed, at := g.Next(10)
	require.EqualValues(t, 5, seed)
	require.EqualValues(t, 0, at)
	_, at = g.Next(1)
	require.EqualValues(t, 10, at)
	a, b := g.Fork(0), g.Fork(1)
	sa, _ := a.State()
	sb, _ := b.State()
	require.NotEqual(t, sa, sb)
	again, _ := g.Fork(0).State()
	require.Equal(t, sa, again)
	g.Next(1)
	moved, _ := g.Fork(0).State()
	require.NotEqual(t, sa, moved)
}
