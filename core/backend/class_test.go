package backend

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestEveryClassHasAnIndexOfItsOwn(t *testing.T) {
	next := 0
	for size := 1; size <= 1<<40; size = SizeClass(size, 64) + 1 {
		require.Equal(t, next, ClassIndex(SizeClass(size, 64)), size)
		next++
	}
	last := -1
	for size := 1; size <= 1<<40; size = SizeClass(size, 256) + 1 {
		class := SizeClass(size, 256)
		require.Zero(t, class%256)
		require.Equal(t, class, SizeClass(class, 64), "classes of a larger unit are among those of the smaller")
		require.Greater(t, ClassIndex(class), last)
		last = ClassIndex(class)
	}
}
